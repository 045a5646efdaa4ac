"""The functions a SavedModel offers, traced from a Keras model."""

import tensorflow as tf

from keras_attention.export.interface import SignatureError
from keras_attention.models.naming import unique_names
from keras_attention.models.scores import attention_scores_model

_PYTHON_OPS = ("PyFunc", "PyFuncStateless", "EagerPyFunc")


def serving_function(model, interface):
    """The model at inference: flat named tensors in, named tensors out.

    Args:
        model: A built Keras model.
        interface: Its `Interface`.

    Returns:
        A `tf.function` that takes the inputs in the order of
        `interface.specs` and returns a dictionary.
    """

    @tf.function(input_signature=list(interface.specs), autograph=False)
    def serving_default(*inputs):
        args, kwargs = interface.pack(list(inputs))
        outputs = model(*args, **kwargs, training=False)
        return interface.name_outputs(outputs)

    return serving_default


def attention_function(model, interface):
    """As `serving_function`, with the scores of every layer that has them.

    Args:
        model: A built Functional or Sequential model.
        interface: Its `Interface`.

    Returns:
        The function, whose outputs gain `<layer>_scores` of shape
        `(B, N, T, S)` for each layer, and the model to keep alive with it.
    """
    scores_model = attention_scores_model(model)

    @tf.function(input_signature=list(interface.specs), autograph=False)
    def attention(*inputs):
        args, kwargs = interface.pack(list(inputs))
        outputs, scores = scores_model(*args, **kwargs, training=False)
        outputs = interface.name_outputs(outputs)
        names = unique_names([*outputs, *(f"{name}_scores" for name in scores)])
        scores = [tf.cast(value, "float32") for value in scores.values()]
        return dict(zip(names, [*outputs.values(), *scores], strict=True))

    return attention, scores_model


def layer_endpoint(serve, interface):
    """The same function as `keras.layers.TFSMLayer` calls it: one argument.

    Args:
        serve: The function made by `serving_function`.
        interface: The `Interface` of the model.

    Returns:
        A `tf.function` of the only input, or of a dictionary of inputs.
    """
    specs = {spec.name: spec for spec in interface.specs}
    if len(specs) == 1:
        return serve

    @tf.function(input_signature=[specs], autograph=False)
    def endpoint(inputs):
        return serve(*(inputs[name] for name in specs))

    return endpoint


def trace(function, name):
    """Traces a signature and refuses what a stock server cannot run.

    Args:
        function: A `tf.function` with an input signature.
        name: The name of the signature, for the messages.

    Returns:
        A concrete function.

    Raises:
        ValueError: the model cannot be traced, or needs Python, a custom op
            or XLA.
    """
    try:
        concrete = function.get_concrete_function()
    except SignatureError:
        raise
    except Exception as error:
        raise ValueError(
            f"The signature {name!r} cannot be traced, so no graph can be "
            "served. A layer may use NumPy, `.numpy()` or Python control "
            "flow on tensor values; use `keras.ops` there. "
            f"Received: {type(error).__name__}: {error}"
        ) from error
    graph = concrete.graph.as_graph_def()
    faults = foreign_ops(graph, graph.node)
    if faults:
        raise ValueError(
            f"The signature {name!r} needs what a stock model server does "
            f"not have: {'; '.join(faults)}. Replace it by `keras.ops`, or "
            "do that step in the client."
        )
    return concrete


def check_batch_axes(concrete):
    """Refuses outputs that do not have one row per row of the inputs.

    Args:
        concrete: The concrete function of `serving_default`.

    Raises:
        ValueError: an output has no batch axis; the message names it.
    """
    shapes = [
        spec.shape for spec in concrete.inputs if spec.dtype != tf.resource
    ]
    open_batch = any(shape.rank and shape[0] is None for shape in shapes)
    for name, spec in concrete.structured_outputs.items():
        rank = spec.shape.rank
        if rank == 0 or (rank and open_batch and spec.shape[0] is not None):
            raise ValueError(
                "A server gives one row of every output per row of the "
                f"inputs. Give the output {name!r} a batch axis, or leave it "
                f"out. Received: shape={tuple(spec.shape)}"
            )


def reachable_nodes(graph, roots):
    """Collects the nodes that a graph runs, through the functions it calls.

    Args:
        graph: A `GraphDef`.
        roots: The nodes to begin with.

    Returns:
        A list of nodes, those of called functions included.
    """
    functions = {f.signature.name: f for f in graph.library.function}
    found, called, waiting = [], set(), list(roots)
    while waiting:
        node = waiting.pop()
        found.append(node)
        names = {node.op}
        for value in node.attr.values():
            names.update(f.name for f in (value.func, *value.list.func))
        for name in names & functions.keys() - called:
            called.add(name)
            waiting.extend(functions[name].node_def)
    return found


def foreign_ops(graph, roots):
    """Lists what a stock TensorFlow Serving cannot run in a graph.

    Args:
        graph: A `GraphDef`.
        roots: The nodes to begin with.

    Returns:
        A list of phrases, empty for a graph of plain TensorFlow ops.
    """
    own = {function.signature.name for function in graph.library.function}
    found = {}
    for node in reachable_nodes(graph, roots):
        if node.op in _PYTHON_OPS:
            kind = "Python op"
        elif node.op.startswith("Xla") or node.attr["_XlaMustCompile"].b:
            kind = "XLA-only op"
        elif node.op not in own and not _is_stock_op(node.op):
            kind = "custom op"
        else:
            continue
        found.setdefault(node.op, f"{kind} {node.op} ({node.name})")
    return list(found.values())


def _is_stock_op(name):
    # `raw_ops` is fixed when TensorFlow is built: libraries that are loaded
    # later do not add to it. Ops that start with "_" are internal.
    return name.startswith("_") or hasattr(tf.raw_ops, name)
