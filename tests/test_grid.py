"""One answer: everything that attends, at every precision, mask and path."""

import functools

import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support.layer_contract import (
    POLICIES,
    TOLERANCE,
    assert_close,
    to_numpy,
)
from support.subjects import SUBJECTS, S, T

from keras_attention import reference

PADDING = {
    "query_mask": np.arange(T) < np.array([[4], [2]]),
    "key_mask": np.arange(S) < np.array([[3], [5]]),
}
MASKS = {
    "no mask": {},
    "padding": PADDING,
    "causal": {"use_causal_mask": True},
    "padding and causal": {**PADDING, "use_causal_mask": True},
    "a row that sees nothing": "row",
}

every_subject = pytest.mark.parametrize("name", SUBJECTS)
every_mask = pytest.mark.parametrize("mask", MASKS)


def options_for(subject, mask):
    if MASKS[mask] != "row":
        return MASKS[mask]
    full = np.ones((subject.shapes[0][-2], S), bool)
    full[1] = False
    full[2, 3:] = False
    return {"attention_mask": full}


@functools.cache
def expected(name, mask):
    """What the oracle says, the same at every policy."""
    subject = SUBJECTS[name]()
    return subject.oracle(
        subject.inputs, subject.weights, **options_for(subject, mask)
    )


@functools.cache
def exact_gradients(name, mask):
    """Gradients in float64, which one test holds against measured ones."""
    subject = SUBJECTS[name]("float64")
    return gradients_of(subject, options_for(subject, mask))


@every_mask
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("policy", POLICIES)
@every_subject
def test_equals_the_reference(name, policy, dropout, mask):
    subject = SUBJECTS[name](policy, dropout)
    inputs, options = subject.cast_inputs(), options_for(subject, mask)
    output, scores = subject.call(
        inputs, return_attention_scores=True, **options
    )
    alone = subject.call(inputs, **options)
    right = expected(name, mask)
    assert_close(output, right[0], subject.dtype)
    assert_close(alone, right[0], subject.dtype)
    assert_close(scores, right[1], subject.dtype)


@every_mask
@every_subject
def test_gradients_are_those_measured_on_the_reference(name, mask):
    subject = SUBJECTS[name]("float64")
    options = options_for(subject, mask)
    gradients, weighting = exact_gradients(name, mask)
    arrays = [*subject.inputs, *subject.weights]
    arrays = [array.astype("float64") for array in arrays]
    rng = np.random.default_rng(4)
    for i, gradient in enumerate(gradients):
        for _ in range(2):
            direction = rng.normal(size=arrays[i].shape)

            def loss(step, i=i, direction=direction):
                moved = list(arrays)
                moved[i] = arrays[i] + step * direction
                output, _ = subject.oracle(
                    moved[: len(subject.inputs)],
                    moved[len(subject.inputs) :],
                    **options,
                )
                return np.sum(output * weighting)

            measured = reference.numeric_gradient(
                loss, np.zeros(()), epsilon=1e-5
            )
            np.testing.assert_allclose(
                np.sum(gradient * direction), measured, rtol=1e-6, atol=1e-7
            )


@every_mask
@pytest.mark.parametrize("policy", POLICIES)
@every_subject
def test_gradients_at_every_precision(name, policy, mask):
    subject = SUBJECTS[name](policy)
    gradients, _ = gradients_of(subject, options_for(subject, mask))
    tolerance = 10 * TOLERANCE[subject.dtype]
    for one, other in zip(
        gradients, exact_gradients(name, mask)[0], strict=True
    ):
        assert np.isfinite(one).all()
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def gradients_of(subject, options):
    """Gradients of a weighted sum of the output, and the weighting."""
    inputs = subject.cast_inputs()
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output = subject.call(inputs, **options)
        weighting = np.random.default_rng(6).choice(
            [-0.5, 0.25, 1.0], size=output.shape
        )
        loss = ops.sum(ops.cast(output, "float64") * weighting)
    weights = []
    if subject.layer is not None:
        weights = [w.value for w in subject.layer.trainable_weights]
    gradients = tape.gradient(loss, [*inputs, *weights])
    return [to_numpy(g) for g in gradients], weighting
