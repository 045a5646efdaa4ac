"""Writes the golden archives of the present release.

    python saved_models/make.py [FOLDER]

They go to `FOLDER/<release>/`, beside this script by default. A release that
is there is never overwritten: what it saved, every later release must load.
"""

import hashlib
import json
import pathlib
import shutil
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parent / "tests")]

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from support import trips  # noqa: E402
from support.catalogue import FACTORIES, LAYERS  # noqa: E402

import keras_attention  # noqa: E402
from keras_attention import export  # noqa: E402

ARCHIVES = {**LAYERS, **FACTORIES}


def main(folder=HERE):
    """Writes one folder for each layer and factory, and the manifest."""
    release = pathlib.Path(folder) / keras_attention.__version__
    if release.exists():
        sys.exit(f"{release} exists. Golden archives are never made again.")
    keras.utils.set_random_seed(0)
    with tempfile.TemporaryDirectory() as temporary:
        made = pathlib.Path(temporary) / "release"
        for name, case in ARCHIVES.items():
            print(name)
            save(case, made / name)
        manifest = {
            "versions": {
                "keras_attention": keras_attention.__version__,
                "keras": keras.__version__,
                "tensorflow": tf.__version__,
                "numpy": np.__version__,
            },
            "archives": sorted(ARCHIVES),
            "sha256": hashes(made),
        }
        text = json.dumps(manifest, indent=1) + "\n"
        (made / "manifest.json").write_text(text)
        shutil.copytree(made, release)
    print(f"Wrote {release}")


def save(case, folder):
    """Saves a model of `case` in each format, with inputs and outputs."""
    folder.mkdir(parents=True)
    model = case.model()
    model.save(folder / "model.keras")
    model.save_weights(folder / "model.weights.h5")
    np.savez_compressed(folder / "inputs.npz", **case.arrays)
    outputs = trips.call(model, case.arrays)
    np.savez_compressed(folder / "outputs.npz", *outputs)
    with tempfile.TemporaryDirectory() as base:
        version = export.export_for_serving(
            model, base, attention=False, examples=False, warm_up=False
        )
        shutil.make_archive(folder / "savedmodel", "zip", version)


def hashes(folder):
    """Returns the SHA-256 of each file below `folder`, by relative path."""
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(
            path.read_bytes()
        ).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "manifest.json"
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
