"""From a trained Keras model to a version folder of a model server."""

import logging

import keras

from keras_attention.export.interface import read_interface
from keras_attention.export.preprocessing import (
    examples_function,
    text_function,
)
from keras_attention.export.signatures import (
    attention_function,
    check_batch_axes,
    layer_endpoint,
    serving_function,
    trace,
)
from keras_attention.export.version import Target, Traced, write_version
from keras_attention.models.scores import has_attention_scores

_log = logging.getLogger(__name__)


def export_for_serving(
    model,
    base_path,
    version=None,
    *,
    input_signature=None,
    preprocessing=None,
    attention=None,
    examples=None,
    name=None,
    label=None,
    warm_up=None,
    overwrite=False,
):
    """Writes a model as a version folder that TensorFlow Serving loads.

    The folder `base_path/<version>` appears whole, in one step: a server
    that polls `base_path` never sees a part of it, and a process that dies
    on the way leaves the other versions as they were. The weights are on
    disk once. The signature `serving_default` takes the inputs under the
    model's own names and dtypes (float32 for half precision), of any batch
    size and of any length that the model leaves open, and returns a
    dictionary of outputs, without dropout. Nothing in it needs Python.
    `keras.layers.TFSMLayer(str(path))` makes a layer of it again.

    Beside the versions stand `README.txt`, with commands and bodies of
    requests for this model, and what a server is started with,
    `models.config` and `batching.config`.

    Names given by the user are kept: keys of dictionaries, names of inputs
    and of output layers. A name made up by Keras loses its counter, so that
    a model built twice has the same signature: an unnamed input is `inputs`
    and the output of an unnamed `Dense` is `dense`; what repeats is numbered
    in order (`dense`, `dense_1`). The outputs of a subclassed model that
    returns no dictionary are `outputs`, `outputs_1`, ...

    Args:
        model: A built `keras.Model`: Functional, Sequential or subclassed.
        base_path: Folder that holds the versions of this model.
        version: Positive integer; None for the next free number.
        input_signature: Structure of `keras.KerasTensor`, `keras.InputSpec`
            or `tf.TensorSpec` like the model's inputs. Needed where the model
            does not say what it takes: a subclassed model, or a Sequential
            one without `keras.Input`, knows only the shapes it was built
            with, and those are taken otherwise, with any batch size.
        preprocessing: Layer that turns strings `(B,)` into the model's only
            input, such as `keras.layers.TextVectorization`; or a dictionary
            from input names to such layers. Adds the signature `text`.
        attention: Whether to add the signature `attention`, whose outputs
            gain `<layer>_scores` of shape `(B, N, T, S)` for each attention
            layer. None for where the model has such layers.
        examples: Whether to add the signature `examples`, which takes
            serialized `tf.Example`s with one feature per input. None for
            where they can hold the inputs.
        name: Name of the model on the server; None for that of `base_path`.
        label: `"stable"` or `"canary"`, for this version in `models.config`.
            None for stable if it is the first, else canary.
        warm_up: Whether to write requests that the server runs before it
            opens the version. None for where the extra `serving` is
            installed.
        overwrite: Whether to replace the version if it exists.

    Returns:
        The version folder, a `pathlib.Path`.

    Raises:
        TypeError: an argument is of the wrong type.
        ValueError: the model cannot be served, or the folder cannot be
            written. Nothing is left behind.

    Example:

    >>> import tempfile
    >>> ids = keras.Input((None,), dtype="int32", name="ids")
    >>> hidden = keras.layers.Embedding(10, 4, mask_zero=True)(ids)
    >>> pooled = keras.layers.GlobalAveragePooling1D()(hidden)
    >>> model = keras.Model(ids, keras.layers.Dense(2, name="label")(pooled))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_for_serving(model, folder).name
    '1'
    """
    target = Target.checked(base_path, version, overwrite, name, label, warm_up)
    interface = read_interface(model, input_signature)
    traced = _trace_signatures(
        model, interface, preprocessing, attention, examples
    )
    return write_version(target, traced, model, interface)


def _trace_signatures(model, interface, preprocessing, attention, examples):
    objects = [model]
    serve = serving_function(model, interface)
    functions = {"serving_default": serve}
    if attention or (attention is None and has_attention_scores(model)):
        functions["attention"], scores_model = attention_function(
            model, interface
        )
        objects.append(scores_model)
    if preprocessing is not None:
        functions["text"] = text_function(serve, interface, preprocessing)
        objects.extend(layers_of(preprocessing))
    if examples or examples is None:
        functions["examples"] = examples_function(serve, interface)
    if functions.get("examples", serve) is None:
        del functions["examples"]
        if examples:
            raise ValueError(
                "A `tf.Example` holds one open length per input at most. "
                "Received: examples=True and inputs "
                f"{[(s.name, tuple(s.shape)) for s in interface.specs]}"
            )
    _log.info("Tracing the signatures %s", ", ".join(functions))
    traced = {name: trace(fn, name) for name, fn in functions.items()}
    check_batch_axes(traced["serving_default"])
    return Traced(layer_endpoint(serve, interface), traced, objects)


def layers_of(preprocessing):
    """Returns the layers in `preprocessing`, a layer or a dictionary."""
    layers = (
        list(preprocessing.values())
        if isinstance(preprocessing, dict)
        else [preprocessing]
    )
    for layer in layers:
        if not isinstance(layer, keras.Layer):
            raise TypeError(
                "`preprocessing` must be a Keras layer, or a dictionary of "
                f"them by input name. Received: {layer!r} of type "
                f"{type(layer).__name__}"
            )
    return layers
