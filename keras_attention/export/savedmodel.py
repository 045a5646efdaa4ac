"""From a trained Keras model to a version folder of a model server."""

import dataclasses
import logging
from collections.abc import Callable

import keras
import tensorflow as tf

from keras_attention.export.folder import (
    check_base_path,
    check_version,
    locked,
    staged,
)
from keras_attention.export.interface import read_interface
from keras_attention.export.messages import (
    has_serving_api,
    predict_request,
    serving_api,
    write_warm_up,
)
from keras_attention.export.metadata import (
    read_graph,
    read_signatures,
    write_metadata,
)
from keras_attention.export.preprocessing import (
    examples_function,
    text_function,
)
from keras_attention.export.readme import write_readme
from keras_attention.export.server_files import (
    check_label,
    check_name,
    write_server_files,
)
from keras_attention.export.signatures import (
    attention_function,
    check_batch_axes,
    layer_endpoint,
    serving_function,
    trace,
)
from keras_attention.export.tracking import parameter_bytes, track_state
from keras_attention.export.trial_requests import trial_requests
from keras_attention.models.scores import has_attention_scores

_GRAPH_ALLOWANCE = 4 << 20
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
    _check_backend()
    base = check_base_path(base_path)
    check_version(base, version, overwrite)
    name = check_name(name, base)
    check_label(label)
    if warm_up:
        serving_api("prediction_log_pb2")
    interface = read_interface(model, input_signature)
    traced = _trace_signatures(
        model, interface, preprocessing, attention, examples
    )
    size = parameter_bytes(traced.objects)
    space = int(1.05 * size) + _GRAPH_ALLOWANCE
    with locked(base):
        # Another export may have taken the number while this one traced.
        number = check_version(base, version, overwrite)
        with staged(base, number, overwrite, space) as folder:
            _log.info("Writing %.1f MB of weights", size / 1e6)
            _save(traced, folder)
            write_metadata(folder, name, model, interface)
            _log.info("Running requests on each signature")
            shown, requests = trial_requests(traced.signatures)
            if warm_up or (warm_up is None and has_serving_api()):
                _write_warm_up(folder, name, requests)
        signatures = read_signatures(read_graph(base / str(number)))
        labels = write_server_files(base, name, number, label)
        write_readme(base, name, number, labels, signatures, shown)
    return base / str(number)


def _write_warm_up(folder, name, requests):
    write_warm_up(
        folder,
        [
            predict_request(r.inputs, r.specs, name, r.signature)
            for r in requests
        ],
    )


@dataclasses.dataclass
class _Traced:
    """What is saved: the functions, and the objects whose state they use."""

    endpoint: Callable
    signatures: dict
    objects: list


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
        objects.extend(_layers_of(preprocessing))
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
    return _Traced(layer_endpoint(serve, interface), traced, objects)


def _layers_of(preprocessing):
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


def _check_backend():
    if keras.backend.backend() != "tensorflow":
        raise ValueError(
            "Exporting needs the TensorFlow backend. Save the model as "
            "`.keras`, then load and export it in a process started with "
            "KERAS_BACKEND=tensorflow. "
            f"Received: backend={keras.backend.backend()!r}"
        )


def _save(traced, folder):
    module = track_state(traced.objects, traced.signatures.values())
    module.serve = traced.endpoint
    try:
        tf.saved_model.save(
            module,
            str(folder),
            signatures=traced.signatures,
            # A server asks for no gradients; with them, a graph that holds a
            # reloaded export cannot be written.
            options=tf.saved_model.SaveOptions(
                save_debug_info=False, experimental_custom_gradients=False
            ),
        )
    except (tf.errors.OpError, AssertionError, OSError, TypeError) as error:
        raise ValueError(
            "TensorFlow could not write the model (a full disk, or state "
            "that no Keras layer tracks). "
            f"Received: {type(error).__name__}: {error}"
        ) from error
