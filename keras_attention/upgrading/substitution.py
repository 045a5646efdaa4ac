"""Makes the code of others build our layers, for a moment."""

from __future__ import annotations

import contextlib
import threading

from keras_attention.upgrading.replacements import CannotReplaceError

_LOCK = threading.RLock()


@contextlib.contextmanager
def substituted(replacements):
    """Hands out our layers where this thread asks for the replaced ones.

    A user's layer makes its attention in its own constructor. To run that
    again, with our class in the place of Keras's, gives the same attributes
    in the same order, and a layer that is built and tracked as Keras wants.

    Args:
        replacements: List of `Replacement`.
    """
    thread = threading.get_ident()
    with _LOCK, contextlib.ExitStack() as stack:
        for replacement in replacements:
            stack.enter_context(_constructor(replacement, thread))
        yield


@contextlib.contextmanager
def _constructor(replacement, thread):
    source = replacement.source

    def new(cls, *args, **kwargs):
        # What is returned is no `source`: Python does not initialise it.
        if cls is source and threading.get_ident() == thread:
            with contextlib.suppress(CannotReplaceError):
                return replacement.from_arguments(args, kwargs)
        return super(source, cls).__new__(cls, *args, **kwargs)

    source.__new__ = staticmethod(new)
    try:
        yield
    finally:
        del source.__new__
