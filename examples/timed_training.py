"""Training for so many minutes, on whatever machine. Used by the examples."""

import math
import time

import keras


def train(model, batches, validation, minutes, peak, steps_per_report):
    """Trains a model that writes, and returns what the reports said.

    Args:
        model: A model that gives logits.
        batches: Endless `tf.data.Dataset` of inputs and labels.
        validation: Inputs and labels held out, as arrays.
        minutes: Time of the whole training.
        peak: Highest learning rate.
        steps_per_report: Number of batches between two reports.

    Returns:
        A dictionary of lists: `loss`, `val_loss` and `minutes`.
    """
    model.compile(
        keras.optimizers.AdamW(weight_decay=1e-2, clipnorm=1.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        # Compiling for each length of a batch costs more than it gains.
        jit_compile=False,
    )
    # Left to the first step, this has Keras trace it twice.
    model.optimizer.build(model.trainable_variables)
    reports = model.fit(
        batches,
        validation_data=validation,
        validation_batch_size=128,
        steps_per_epoch=steps_per_report,
        epochs=1_000_000,
        callbacks=[TimeBudget(minutes, peak)],
        shuffle=False,
        verbose=0,
    )
    return reports.history


class TimeBudget(keras.callbacks.Callback):
    """Stops when the time is up, with a learning rate that knows it.

    The rate rises in a line, then falls in a cosine, by the share of the time
    that has passed: a slower machine takes fewer steps, and still ends at 0.

    Args:
        minutes: Time of the whole `fit`.
        peak: Highest learning rate.
        warm_up: Share of the time in which the rate rises.
    """

    def __init__(self, minutes, peak, warm_up=0.05):
        super().__init__()
        self.seconds = 60 * minutes
        self.peak = peak
        self.warm_up = warm_up

    def on_train_begin(self, logs=None):
        self.start = time.perf_counter()

    def on_train_batch_begin(self, batch, logs=None):
        share = min(1.0, self._share())
        rising = min(1.0, share / self.warm_up)
        falling = 0.5 * (1 + math.cos(math.pi * share))
        self.model.optimizer.learning_rate = self.peak * rising * falling

    def on_train_batch_end(self, batch, logs=None):
        if self._share() >= 1:
            self.model.stop_training = True

    def on_epoch_end(self, epoch, logs=None):
        logs["minutes"] = (time.perf_counter() - self.start) / 60
        print(
            f"{logs['minutes']:5.1f} minutes   loss {logs['loss']:.3f}   "
            f"held out {logs['val_loss']:.3f}",
            flush=True,
        )

    def _share(self):
        return (time.perf_counter() - self.start) / self.seconds
