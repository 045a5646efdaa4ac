"""Tensors that no layer here can take, told apart at the door."""

from __future__ import annotations

from keras_attention.ops.keras2 import refuse_keras_2


def check_inputs(**tensors) -> None:
    """Refuses tensors that cannot be computed with, by name.

    Args:
        **tensors: Anything; what is no tensor passes.

    Raises:
        TypeError: A tensor comes from Keras 2, or is of complex numbers.
        ValueError: A tensor is ragged.

    Example:

    >>> check_inputs(query=None, value=[1.0])
    """
    check_dense(**tensors)
    for name, tensor in tensors.items():
        dtype = getattr(tensor, "dtype", None)
        dtype = str(getattr(dtype, "name", dtype))
        if "complex" in dtype:
            raise TypeError(
                f"`{name}` holds complex numbers, whose imaginary parts would "
                "be lost. Pass real numbers, such as its `ops.real` and "
                "`ops.imag` side by side as features. Received: "
                f"{name}.dtype={dtype}"
            )


def check_dense(**tensors) -> None:
    """Refuses tensors that have no rows of one length, by name.

    Args:
        **tensors: As in `check_inputs`.

    Raises:
        TypeError: A tensor comes from Keras 2.
        ValueError: A tensor is ragged.

    Example:

    >>> check_dense(mask=None)
    """
    refuse_keras_2(**tensors)
    for name, tensor in tensors.items():
        if hasattr(tensor, "row_splits") or getattr(tensor, "ragged", False):
            raise ValueError(
                f"`{name}` is ragged; dense tensors are taken. Pad it with "
                "`.to_tensor()`, and pass which positions are tokens as the "
                "padding mask, such as `tf.sequence_mask(ragged."
                "row_lengths())`, or let `PaddingMask` read it from what the "
                f"padding holds. Received: {name} of type "
                f"{type(tensor).__name__}"
            )
