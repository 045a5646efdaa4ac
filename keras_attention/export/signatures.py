"""The functions a SavedModel offers, traced from a Keras model."""

import tensorflow as tf

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
    except Exception as error:
        raise ValueError(
            f"The signature {name!r} cannot be traced, so no graph can be "
            "served. A layer may use NumPy, `.numpy()` or Python control "
            "flow on tensor values; use `keras.ops` there. "
            f"Received: {type(error).__name__}: {error}"
        ) from error
    graph = concrete.graph.as_graph_def()
    faults = foreign_ops(graph)
    if faults:
        raise ValueError(
            f"The signature {name!r} needs what a stock model server does "
            f"not have: {'; '.join(faults)}. Replace it by `keras.ops`, or "
            "do that step in the client."
        )
    return concrete


def foreign_ops(graph, reachable=None):
    """Lists what a stock TensorFlow Serving cannot run in a graph.

    Args:
        graph: A `GraphDef`.
        reachable: Names of the functions to look at; all when None.

    Returns:
        A list of sentences, empty for a graph of plain TensorFlow ops.
    """
    nodes = list(graph.node)
    for function in graph.library.function:
        if reachable is None or function.signature.name in reachable:
            nodes.extend(function.node_def)
    own = {function.signature.name for function in graph.library.function}
    found = {}
    for node in nodes:
        if node.op in _PYTHON_OPS:
            found[node.op] = f"Python op {node.op} ({node.name})"
        elif node.attr["_XlaMustCompile"].b or node.op.startswith("Xla"):
            found["xla"] = f"XLA-only op {node.op} ({node.name})"
        elif not _is_stock_op(node.op) and node.op not in own:
            found[node.op] = f"custom op {node.op} ({node.name})"
    return list(found.values())


def _is_stock_op(name):
    # `raw_ops` is fixed when TensorFlow is built: libraries that are loaded
    # later do not add to it. Ops that start with "_" are internal.
    return name.startswith("_") or hasattr(tf.raw_ops, name)
