"""Tensors of Keras 2, which no layer of Keras 3 can take."""

from __future__ import annotations


def refuse_keras_2(**tensors) -> None:
    """Refuses tensors that `tf_keras` made, by name.

    Args:
        **tensors: Anything; what is no symbolic tensor of Keras 2 passes.

    Raises:
        TypeError: A tensor comes from Keras 2.

    Example:

    >>> refuse_keras_2(query=None, value=[1.0])
    """
    for name, tensor in tensors.items():
        module = type(tensor).__module__
        if module.partition(".")[0] == "tf_keras":
            raise TypeError(
                f"`{name}` is a tensor of Keras 2 (`tf_keras`), which layers "
                "of Keras 3 cannot take: build the whole model with `import "
                "keras`, and unset `TF_USE_LEGACY_KERAS` where `tf.keras` "
                f"stands for Keras 2. Received: {name} of type "
                f"{module}.{type(tensor).__name__}"
            )
