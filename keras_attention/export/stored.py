"""Whether the variables of a version folder are stored more than once."""

import collections
import hashlib
import pathlib

import numpy as np
import tensorflow as tf


def stored_twice(path, graph):
    """Finds tensors that the checkpoint holds under two names.

    Equal numbers alone are no fault: initializers may share a seed. One of
    the two has to be a variable that no signature reads.

    Args:
        path: A version folder.
        graph: Its `MetaGraphDef`.

    Returns:
        A list of problems.
    """
    prefix = pathlib.Path(path) / "variables" / "variables"
    if not prefix.with_suffix(".index").exists():
        return []
    reader = tf.train.load_checkpoint(str(prefix))
    used = _used_variables(graph)
    stored, first, total, repeated = collections.Counter(), {}, 0, {}
    for name in sorted(reader.get_variable_to_shape_map()):
        value = np.asarray(reader.get_tensor(name))
        if value.dtype.kind == "O" or value.size < 2:
            continue
        total += value.nbytes
        stored[_kind(value.shape, value.dtype)] += 1
        # Fresh biases are equal without being the same, and so is NaN.
        if np.all(value == value.flat[0]) or np.all(value != value):
            continue
        key = value.shape, hashlib.sha256(value.tobytes()).digest()
        if key in first:
            repeated[name] = value
        first[key] = name
    idle = {
        name: value.nbytes
        for name, value in repeated.items()
        if stored[_kind(value.shape, value.dtype)]
        > used[_kind(value.shape, value.dtype)]
    }
    if sum(idle.values()) <= 0.1 * total:
        return []
    return [
        f"{sum(idle.values())} of {total} bytes are copies, such as "
        f"{next(iter(idle))}"
    ]


def _used_variables(graph):
    """Counts the variables that signatures are given, by shape and dtype."""
    savers = (graph.saver_def.save_tensor_name, graph.saver_def.restore_op_name)
    savers = {name.partition(":")[0] for name in savers}
    nodes = {node.name: node for node in graph.graph_def.node}
    given = {
        name.partition(":")[0]
        for node in nodes.values()
        if node.op in ("PartitionedCall", "StatefulPartitionedCall")
        and node.name not in savers
        for name in node.input
    }
    variables = (nodes[name] for name in given if name in nodes)
    return collections.Counter(
        _kind(
            tf.TensorShape(node.attr["shape"].shape).as_list(),
            tf.dtypes.as_dtype(node.attr["dtype"].type).as_numpy_dtype,
        )
        for node in variables
        if node.op == "VarHandleOp"
    )


def _kind(shape, dtype):
    return tuple(shape), np.dtype(dtype).name
