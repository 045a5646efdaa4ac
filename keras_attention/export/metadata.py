"""What a version folder says of itself, for clients and checks.

Signatures are read from `saved_model.pb`, which every SavedModel has. What
TensorFlow has no place for is in `assets.extra/keras_attention.json`, which
servers ignore.
"""

import json
import pathlib

import keras
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

import keras_attention

_FILE = pathlib.Path("assets.extra") / "keras_attention.json"


def write_metadata(folder, name, model, interface):
    """Writes the metadata file of a version folder.

    Args:
        folder: The folder, a `pathlib.Path`.
        name: Name of the model on the server.
        model: The exported model.
        interface: Its `Interface`.
    """
    content = {
        "name": name,
        "versions": {
            "keras_attention": keras_attention.__version__,
            "keras": keras.__version__,
            "tensorflow": tf.__version__,
        },
        "dtype_policy": model.dtype_policy.name,
        # Whether the shapes were stated, and not guessed from data.
        "declared": interface.declared,
    }
    path = folder / _FILE
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n")


def read_metadata(folder):
    """Reads the metadata file; an empty dictionary where there is none."""
    path = pathlib.Path(folder) / _FILE
    content = json.loads(path.read_text()) if path.is_file() else {}
    if not isinstance(content, dict):
        raise ValueError(f"{str(_FILE)!r} is no JSON object")
    return content


def find_graph(folder):
    """Returns the path of the file that holds the graph of a SavedModel.

    Args:
        folder: A version folder.

    Raises:
        ValueError: there is no such folder or file.
    """
    folder = pathlib.Path(folder)
    path = folder / "saved_model.pb"
    if not folder.is_dir():
        raise ValueError(f"There is no folder {str(folder)!r}.")
    if not path.is_file():
        raise ValueError(
            f"There is no `saved_model.pb` in {str(folder)!r}. Give the "
            "folder of one version, such as `models/sentiment/1`."
        )
    return path


def read_graph(folder):
    """Reads the `MetaGraphDef` with the tag `serve` of a SavedModel.

    Args:
        folder: A version folder.

    Returns:
        A `MetaGraphDef`.

    Raises:
        ValueError: the folder holds no SavedModel for serving.
    """
    path = find_graph(folder)
    saved = saved_model_pb2.SavedModel.FromString(path.read_bytes())
    for graph in saved.meta_graphs:
        if "serve" in graph.meta_info_def.tags:
            return graph
    raise ValueError(
        f"The SavedModel in {str(folder)!r} has no graph with the tag 'serve'."
    )


def read_signatures(graph):
    """Lists what each signature takes and gives.

    Args:
        graph: A `MetaGraphDef`.

    Returns:
        Dictionary from signature names to pairs of dictionaries, inputs and
        outputs, from names to `tf.TensorSpec`.
    """
    return {
        name: (_specs(signature.inputs), _specs(signature.outputs))
        for name, signature in sorted(graph.signature_def.items())
        if not name.startswith("__")
    }


def _specs(infos):
    return {
        name: tf.TensorSpec(
            tf.TensorShape(info.tensor_shape),
            tf.dtypes.as_dtype(info.dtype),
            name=name,
        )
        for name, info in sorted(infos.items())
    }
