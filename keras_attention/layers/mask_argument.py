"""`mask=`, the name that Keras has for padding masks of any layer."""

from __future__ import annotations

import inspect

import numpy as np

_LIST = "[query_mask, value_mask]"

# Arguments of a call that are no tensors to attend to.
_FLAGS = {
    "training",
    "use_causal_mask",
    "return_attention_scores",
    "attention_mask",
    "attention_bias",
    "query_mask",
    "value_mask",
    "key_mask",
}


class MaskArgument:
    """Lets `mask=` stand for the padding masks of query, value and key.

    For a layer whose `call` has tensors and masks of these names. A mask that
    is given under its own name wins.
    """

    def __call__(self, *args, mask=None, **kwargs):
        """Calls the layer, the masks under their own names."""
        if len(args) == 1 and not kwargs.keys() - _FLAGS:
            self._refuse_one_tensor(args[0])
        if mask is not None:
            # By what was passed: Keras makes two tensors of an array that
            # is passed twice.
            call = inspect.signature(self.call)
            given = call.bind_partial(*args, **kwargs).arguments
            if isinstance(given.get("query"), (list, tuple)):
                # Keras's own call on one list, with a list of masks.
                kwargs["mask"] = mask
            else:
                kwargs.update(_by_name(mask, given))
        return super().__call__(*args, **kwargs)

    def _refuse_one_tensor(self, given):
        """Says how self-attention is called, where one tensor is passed."""
        parameters = inspect.signature(self.call).parameters
        needed = [
            name
            for name in ("query", "key", "value")
            if name in parameters
            and parameters[name].default is inspect.Parameter.empty
        ]
        if len(needed) > 1 and not isinstance(given, (list, tuple)):
            call = ", ".join("x" for _ in needed)
            raise TypeError(
                f"`{type(self).__name__}` takes {', '.join(needed)}. For "
                f"self-attention call it as `layer({call})`. Received: one "
                "positional argument"
            )


def _by_name(mask, given) -> dict:
    """Returns the masks that `mask` holds and the call does not name.

    Args:
        mask: A mask `(B, T)`, or a list `[query_mask, value_mask]`, perhaps
            with `key_mask`, any of them None.
        given: The arguments of the call by name.
    """
    named = {
        name
        for name in ("query_mask", "value_mask", "key_mask")
        if given.get(name) is not None
    }
    if _is_list(mask):
        if len(mask) > 3:
            raise ValueError(
                f"`mask` must be a list of one to three masks, {_LIST} and "
                f"perhaps key_mask. Received: len(mask)={len(mask)}"
            )
        names = ("query_mask", "value_mask", "key_mask")
        masks = dict(zip(names, mask, strict=False))
    else:
        query, masks = given.get("query"), {"query_mask": mask}
        others = [given.get(name) for name in ("value", "key")]
        if all(x is query or x is None for x in others):
            masks["value_mask"] = mask
        elif not named & {"value_mask", "key_mask"}:
            raise ValueError(
                "`mask` is one mask, but `query` and `value` are two tensors, "
                f"so that it is not known whose it is. Pass `mask={_LIST}`, "
                "or `query_mask=` and `value_mask=`. Received: "
                f"mask.shape={np.shape(mask)}"
            )
    return {name: x for name, x in masks.items() if name not in named}


def _is_list(mask) -> bool:
    """Whether `mask` is a list of masks, not one written as a list."""
    return isinstance(mask, (list, tuple)) and all(
        x is None or len(getattr(x, "shape", np.shape(x))) > 1 for x in mask
    )
