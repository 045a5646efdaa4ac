"""Messages of TensorFlow Serving: requests and warm-up records."""

import importlib

import tensorflow as tf

_WARM_UP_FILE = "tf_serving_warmup_requests"


def serving_api(module):
    """Imports a module of the optional package `tensorflow-serving-api`.

    Args:
        module: Name of a module in `tensorflow_serving.apis`.

    Returns:
        The module.

    Raises:
        ImportError: the package is not installed; names the extra.
    """
    try:
        return importlib.import_module(f"tensorflow_serving.apis.{module}")
    except ImportError as error:
        raise ImportError(
            "This needs the messages of TensorFlow Serving: "
            'pip install "keras_attention[serving]"'
        ) from error


def has_serving_api():
    """Whether `tensorflow-serving-api` is installed."""
    try:
        serving_api("prediction_log_pb2")
    except ImportError:
        return False
    return True


def predict_request(arrays, specs, model_name, signature):
    """Builds a `PredictRequest`.

    Args:
        arrays: Dictionary from input names to arrays.
        specs: Dictionary from input names to `tf.TensorSpec`.
        model_name: Name of the model on the server.
        signature: Name of the signature.

    Returns:
        A `tensorflow_serving.apis.predict_pb2.PredictRequest`.
    """
    request = serving_api("predict_pb2").PredictRequest()
    request.model_spec.name = model_name
    request.model_spec.signature_name = signature
    for name, array in arrays.items():
        proto = tf.make_tensor_proto(array, specs[name].dtype)
        request.inputs[name].CopyFrom(proto)
    return request


def write_warm_up(folder, requests):
    """Writes the requests that a server runs before it opens a version.

    Args:
        folder: Version folder, a `pathlib.Path`.
        requests: Iterable of `PredictRequest`.
    """
    logs = serving_api("prediction_log_pb2")
    path = folder / "assets.extra" / _WARM_UP_FILE
    path.parent.mkdir(exist_ok=True)
    with tf.io.TFRecordWriter(str(path)) as writer:
        for request in requests:
            log = logs.PredictionLog(
                predict_log=logs.PredictLog(request=request)
            )
            writer.write(log.SerializeToString())
