"""Second derivatives of the blockwise kernel, by way of the dense form.

They are asked for seldom, and need the scores whole: memory grows with T * S.
"""

from __future__ import annotations

import tensorflow as tf

from keras_attention.ops import blockwise_short
from keras_attention.ops.blockwise_inputs import Settings

DIFFERENTIABLE = ("query", "key", "value", "bias")


def second_order(settings: Settings, tensors, upstream, again):
    """Differentiates the gradients of the blockwise kernel.

    Args:
        settings: The `Settings` of the call.
        tensors: As `blockwise_inputs.flatten` returns them.
        upstream: Gradient of the context that the gradients were found from.
        again: Gradients of these gradients, in the order of
            `DIFFERENTIABLE`.

    Returns:
        A list of gradients of the differentiable tensors, then of
        `upstream`.

    Raises:
        NotImplementedError: There is dropout.
    """
    if settings.dropout:
        raise NotImplementedError(
            "The blockwise kernel has no second derivatives under dropout. "
            "Pass `flash_attention=False`, or `dropout=0.0`. Received: "
            f"dropout={settings.dropout}"
        )
    watched = [tensors[n] for n in DIFFERENTIABLE if n in tensors]
    with tf.GradientTape() as outer:
        outer.watch([*watched, upstream])
        with tf.GradientTape() as inner:
            inner.watch(watched)
            context, _, _ = blockwise_short.attend(settings, tensors)
        found = inner.gradient(context, watched, upstream)
    return outer.gradient(found, [*watched, upstream], again)
