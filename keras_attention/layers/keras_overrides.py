"""What a subclass of one of Keras's layers would carry over in vain."""

from __future__ import annotations

import keras


class KerasOverrides:
    """Names the public way wherever Keras's private one is tried.

    A subclass that overrides a private method of Keras's layer is refused
    when it is made: the method would never be called. A private attribute
    of Keras's layer is answered with the name of the public one.
    """

    _replaces: type = keras.layers.MultiHeadAttention

    def __init_subclass__(cls, **kwargs):
        """Refuses methods that nothing would call."""
        super().__init_subclass__(**kwargs)
        for name, member in vars(cls).items():
            if callable(member) and _is_theirs(cls, name):
                raise TypeError(
                    f"`{cls.__name__}` defines `{name}`, a private method of "
                    f"`keras.layers.{cls._replaces.__name__}` that nothing "
                    "calls here. Override `compute_attention(query, key, "
                    "value, mask, ...)` to change how the layer attends. A "
                    "helper of your own needs another name. "
                    f"Received: {cls.__name__}.{name}"
                )

    def __getattr__(self, name):
        """Names the public attribute in place of a private one."""
        error = f"'{type(self).__name__}' object has no attribute '{name}'"
        public = name.removeprefix("_")
        if name != public and not name.startswith("__"):
            # Not by `hasattr`, which would ask here again.
            if public in vars(self) or hasattr(type(self), public):
                error += f". It is public here: `{public}`"
            elif name.startswith("_inverse_sqrt_"):
                error += ". Pass `scale` to `compute_attention` instead"
        raise AttributeError(error)


def _is_theirs(cls, name) -> bool:
    """Whether `name` is private to Keras's layer and unknown to ours."""
    private = name.startswith("_") and not name.startswith("__")
    ours = any(name in vars(base) for base in cls.__mro__[1:])
    return private and not ours and hasattr(cls._replaces, name)
