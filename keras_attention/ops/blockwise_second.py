"""Second derivatives of the blockwise kernel, by way of the dense form.

They are asked for seldom, and need the scores whole: memory grows with T * S.
"""

from __future__ import annotations

import tensorflow as tf

from keras_attention.ops import blockwise_short
from keras_attention.ops.blockwise_inputs import Settings

DIFFERENTIABLE = ("query", "key", "value", "bias")


def second_order(settings: Settings, tensors, upstream, *again):
    """Differentiates the gradients of the blockwise kernel.

    Args:
        settings: The `Settings` of the call.
        tensors: As `blockwise_inputs.flatten` returns them.
        upstream: Gradient of the context that the gradients were found from.
        *again: Gradients of these gradients, in the order of
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
    context, _, _ = blockwise_short.attend(settings, tensors)
    # Without tapes: in forward mode, these do not record.
    found = tf.gradients(context, watched, upstream)
    # That of a bias which heads share is a sum not yet done.
    found = [tf.convert_to_tensor(gradient) for gradient in found]
    found = tf.gradients(found, [*watched, upstream], again)
    return [tf.convert_to_tensor(gradient) for gradient in found]
