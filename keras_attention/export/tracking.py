"""What a SavedModel keeps of a Keras model: its variables, once, and tables.

Saving a Keras object as it stands walks its whole tree of Python objects. The
variables are then found twice, or under names that nothing restores outside
Python. A plain module that holds the raw variables avoids both.
"""

import tensorflow as tf

_Resource = tf.saved_model.experimental.TrackableResource


def track_state(objects, functions):
    """Makes the module to save: raw variables, each once, and tables.

    Args:
        objects: Keras models and layers that the functions call.
        functions: The concrete functions that will be saved.

    Returns:
        A `tf.Module` that tracks the state and none of the Python objects.
    """
    module = tf.Module(name="served")
    module.variables_once = raw_variables(objects)
    module.resources = _captured_resources(objects, functions)
    return module


def raw_variables(objects):
    """The distinct `tf.Variable`s behind the variables of Keras objects."""
    return _unique(v.value for item in objects for v in item.variables)


def parameter_bytes(objects):
    """Size in memory, in bytes, of all variables of some Keras objects."""
    return sum(
        variable.shape.num_elements() * variable.dtype.size
        for variable in raw_variables(objects)
    )


def _captured_resources(objects, functions):
    """Tables, and variables outside Keras's lists, that functions read.

    What nothing reads, such as the slots of an optimizer, is left behind.
    """
    functions = list(functions)
    captured = {id(x) for fn in functions for x in fn.captured_inputs}
    known = {id(variable) for variable in raw_variables(objects)}
    tracked = [
        node
        for item in objects
        for node in tf.train.TrackableView(item).descendants()
        if isinstance(node, (tf.Variable, _Resource))
    ]
    # States of layers and metrics, which a layer may keep where it likes.
    read = [variable for fn in functions for variable in fn.graph.variables]
    nodes = _unique([*tracked, *read])
    return [
        node
        for node in nodes
        if id(node) not in known and id(_handle(node)) in captured
    ]


def _handle(node):
    if isinstance(node, tf.Variable):
        return node.handle
    return node.resource_handle


def _unique(items):
    return list({id(item): item for item in items}.values())
