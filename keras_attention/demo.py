"""Handwritten digits from training to a served model, in one command."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys
import time

import keras
import numpy as np

from keras_attention import models

PATCH = (4, 2)
IMAGE_SHAPE = (8, 8, 1)
RELOAD = """
import sys
import keras, numpy as np
import keras_attention
model = keras.saving.load_model(sys.argv[1])
images = np.load(sys.argv[2])
np.save(sys.argv[3], model.predict(images, verbose=0))
"""
# A None in `sys.modules` makes `import keras_attention` fail.
SERVE = """
import sys
sys.modules["keras_attention"] = None
from tensorflow.python.tools.saved_model_cli import main
sys.exit(main())
"""


@dataclasses.dataclass(frozen=True)
class DemoResult:
    """What the demo made and measured.

    Attributes:
        accuracy: Share of held-out digits named rightly.
        training_seconds: Time that training took.
        reload_difference: Largest difference between the trained model and
            the one reloaded in a fresh process.
        serving_difference: Largest difference between the trained model and
            the export, run without this package.
        model_path: The saved model.
        export_path: The version folder for TensorFlow Serving.
        picture_path: The picture of what each head looks at.
    """

    accuracy: float
    training_seconds: float
    reload_difference: float
    serving_difference: float
    model_path: pathlib.Path
    export_path: pathlib.Path
    picture_path: pathlib.Path


def run(output="demo", epochs=40, verbose=1, seed=1) -> DemoResult:
    """Trains, saves, reloads, exports, serves and draws.

    Args:
        output: Folder to write to, made if missing.
        epochs: Number of passes over the training digits.
        verbose: Verbosity of Keras's training, 0 to 2.
        seed: Seed of the split, the weights and the training.

    Returns:
        A `DemoResult`.

    Raises:
        ImportError: The extra `demo` is not installed.
    """
    _require_extra()
    from keras_attention.export import export_for_serving

    output = pathlib.Path(output)
    output.mkdir(parents=True, exist_ok=True)
    keras.utils.set_random_seed(seed)
    (x_train, y_train), (x_test, y_test) = load_digits(seed)
    model = build_model()

    start = time.perf_counter()
    train(model, x_train, y_train, x_test, y_test, epochs, verbose)
    seconds = time.perf_counter() - start
    accuracy = model.evaluate(x_test, y_test, verbose=0)[1]

    model_path = output / "digits.keras"
    model.save(model_path)
    export_path = export_for_serving(model, output / "serving" / "digits")
    picture_path = output / "attention.png"
    shown = [int(np.argmax(y_test == digit)) for digit in range(6)]
    draw_attention(model, x_test[shown], y_test[shown], picture_path)

    expected = model.predict(x_test, verbose=0)
    reloaded = predict_reloaded(model_path, x_test, output)
    served = predict_served(export_path, x_test, output)
    return DemoResult(
        accuracy=float(accuracy),
        training_seconds=seconds,
        reload_difference=float(np.abs(expected - reloaded).max()),
        serving_difference=float(np.abs(expected - served).max()),
        model_path=model_path,
        export_path=pathlib.Path(export_path),
        picture_path=picture_path,
    )


def load_digits(seed=1):
    """Returns real handwritten digits, a fifth of them held out.

    Args:
        seed: Seed of the split.

    Returns:
        `((x_train, y_train), (x_test, y_test))`: images `(B, 8, 8, 1)`
        float32 from 0 to 1, and labels `(B,)` from 0 to 9.
    """
    from sklearn import datasets, model_selection

    images, labels = datasets.load_digits(return_X_y=True)
    images = images.reshape(-1, *IMAGE_SHAPE).astype("float32") / 16.0
    x_train, x_test, y_train, y_test = model_selection.train_test_split(
        images, labels, test_size=0.2, random_state=seed, stratify=labels
    )
    return (x_train, y_train), (x_test, y_test)


def build_model():
    """Returns the untrained classifier: 8 patches, two encoder blocks."""
    return models.image_classifier(
        image_shape=IMAGE_SHAPE,
        patch_size=PATCH,
        num_classes=10,
        hidden_dim=64,
        num_layers=2,
        num_heads=4,
        intermediate_dim=128,
        dropout=0.2,
        name="digits",
    )


def train(model, x_train, y_train, x_test, y_test, epochs, verbose=1):
    """Trains `model`, with a warm-up and a cosine decay."""
    batch_size = 64
    steps = epochs * -(-len(x_train) // batch_size)
    schedule = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=3e-3, warmup_steps=steps // 10
    )
    model.compile(
        optimizer=keras.optimizers.AdamW(schedule, weight_decay=1e-2),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    model.fit(
        x_train,
        y_train,
        batch_size=batch_size,
        validation_data=(x_test, y_test),
        epochs=epochs,
        verbose=verbose,
    )


def predict_reloaded(model_path, images, folder):
    """Predicts in a fresh process that loads the saved model."""
    inputs, outputs = folder / "inputs.npy", folder / "reloaded.npy"
    np.save(inputs, images)
    _run_python(RELOAD, model_path, inputs, outputs)
    predictions = np.load(outputs)
    outputs.unlink()
    return predictions


def predict_served(export_path, images, folder):
    """Predicts with `saved_model_cli`, where this package cannot be had."""
    inputs = folder / "inputs.npy"
    np.save(inputs, images)
    _run_python(
        SERVE,
        "run",
        "--dir",
        export_path,
        "--tag_set",
        "serve",
        "--signature_def",
        "serving_default",
        "--inputs",
        f"image={inputs}",
        "--outdir",
        folder,
        "--overwrite",
    )
    outputs = folder / "probabilities.npy"
    predictions = np.load(outputs)
    outputs.unlink()
    inputs.unlink()
    return predictions


def draw_attention(model, images, labels, path):
    """Draws each digit and, beside it, where each head looks.

    Args:
        model: The trained classifier.
        images: Images `(B, 8, 8, 1)`.
        labels: Labels `(B,)`.
        path: The PNG file to write.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    _, scores = models.attention_scores_model(model)(images)
    scores = keras.ops.convert_to_numpy(list(scores.values())[-1])
    # Averaged over the patches that look: how much each patch is seen.
    seen = scores.mean(axis=2)
    rows, columns = (n // p for n, p in zip(IMAGE_SHAPE, PATCH, strict=False))
    heads = seen.shape[1]
    figure = Figure(figsize=(1.6 * (heads + 1), 1.75 * len(images)))
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(images), heads + 1, squeeze=False)
    for line, image, label, maps in zip(
        axes, images, labels, seen, strict=True
    ):
        ink = image[..., 0]
        line[0].imshow(ink, cmap="gray_r")
        line[0].set_ylabel(f"a {label}", rotation=0, labelpad=18, fontsize=12)
        for axis, head in zip(line[1:], maps, strict=True):
            heat = np.kron(head.reshape(rows, columns), np.ones(PATCH))
            axis.imshow(heat, cmap="Oranges", vmin=0.0, vmax=maps.max())
            axis.imshow(
                np.ones_like(ink), cmap="gray_r", alpha=0.6 * ink, vmin=0
            )
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    axes[0, 0].set_title("digit")
    for index, axis in enumerate(axes[0, 1:], start=1):
        axis.set_title(f"head {index}")
    figure.suptitle("Where each head of the last block looks", fontsize=13)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def _run_python(code, *arguments):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    finished = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
    )
    if finished.returncode:
        raise RuntimeError(
            "A fresh process failed to run the model. It printed: "
            f"{finished.stderr[-2000:]}"
        )


def _require_extra():
    try:
        import matplotlib  # noqa: F401
        import sklearn  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "The demo needs scikit-learn and matplotlib. Install them with "
            '`pip install "keras_attention[demo]"`.'
        ) from error
