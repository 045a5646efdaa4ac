"""Attention layers that are called on one list of inputs, like Keras's."""

from __future__ import annotations

import dataclasses

from keras import ops

from keras_attention.layers.base_attention import BaseAttention
from keras_attention.ops import masks


class ListAttention(BaseAttention):
    """Takes `[query, value, key]` and `mask=[query_mask, value_mask]`.

    The list is unpacked at the door, so that behind it the layer is one that
    is called with `(query, key, value)`, as it may be from outside, too.
    A subclass says how it scores and which weights it makes.

    Args:
        dropout: Rate at which attention weights are dropped in training.
        seed: Integer that seeds the dropout.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.
    """

    # Whether a query that is padding gets scores, though never a context, as
    # in Keras.
    scores_padding = True

    def __call__(self, *args, **kwargs):
        """Attends, given a list or `(query, key, value)`."""
        args, kwargs = self._unpacked(args, kwargs)
        return super().__call__(*args, **kwargs)

    def build(self, query_shape, key_shape=None, value_shape=None):
        """Makes the weights.

        Args:
            query_shape: Shape `(..., T, D)` of the query, or the list of the
                shapes of query, value and, if it is another one, key.
            key_shape: Shape `(..., S, Dk)` of the key.
            value_shape: Shape `(..., S, Dv)` of the value.
        """
        shapes = self._three_shapes(query_shape, key_shape, value_shape)
        super().build(*shapes)
        self._make_weights(*shapes)

    def compute_mask(self, inputs, mask=None):
        """Returns the mask of the query."""
        if isinstance(inputs, (list, tuple)):
            self._check_list(inputs, mask)
            mask = mask and mask[0]
        return None if mask is None else ops.convert_to_tensor(mask)

    def compute_output_shape(
        self, input_shape, key_shape=None, value_shape=None
    ):
        """Returns the shape of the context, given shapes as in `build`."""
        return super().compute_output_shape(
            *self._three_shapes(input_shape, key_shape, value_shape)
        )

    def compute_output_spec(self, *args, **kwargs):
        """Returns the symbolic output, after the checks that `call` makes."""
        args, kwargs = self._unpacked(args, kwargs)
        return super().compute_output_spec(*args, **kwargs)

    def _attend(self, query, key, value, mask, **options):
        if not self.scores_padding:
            return self._weigh(query, key, value, mask, **options)
        visible = mask.query
        output = self._weigh(
            masks.hide(query, visible),
            key,
            value,
            dataclasses.replace(mask, query=None),
            **options,
        )
        if not options["return_attention_scores"]:
            return masks.hide(output, visible)
        context, scores = output
        return masks.hide(context, visible), scores

    def _weigh(self, query, key, value, mask, **options):
        """Does what `BaseAttention._attend` is described to do."""
        raise NotImplementedError

    def _make_weights(self, query_shape, key_shape, value_shape):
        """Makes what weights there are."""

    def _unpacked(self, args, kwargs):
        """Returns the arguments of `call`, whichever way they were given."""
        three = len(args) > 1 and not isinstance(args[0], (list, tuple))
        if three or {"key", "value"} & kwargs.keys():
            return args, kwargs
        return (), self._by_name(*args, **kwargs)

    def _by_name(
        self,
        inputs,
        mask=None,
        training=None,
        return_attention_scores=False,
        use_causal_mask=False,
        **options,
    ):
        """Returns the arguments of Keras's layer under the names of `call`."""
        self._check_list(inputs, mask)
        query, value, key = (*inputs, inputs[-1])[:3]
        query_mask, value_mask, key_mask = (*(mask or ()), *[None] * 3)[:3]
        return {
            "query": query,
            "key": key,
            "value": value,
            "query_mask": query_mask,
            "key_mask": key_mask,
            "value_mask": value_mask,
            "use_causal_mask": use_causal_mask,
            "return_attention_scores": return_attention_scores,
            "training": training,
            **options,
        }

    def _three_shapes(self, query_shape, key_shape, value_shape):
        """Returns the shapes of query, key and value."""
        if not isinstance(query_shape[0], (list, tuple)):
            return query_shape, key_shape, value_shape
        self._check_list(query_shape)
        query, value, key = (*query_shape, query_shape[-1])[:3]
        return query, key, value

    def _check_list(self, inputs, mask=None):
        """Refuses what is no list, in the words of Keras's own layer."""
        name = type(self).__name__
        if not isinstance(inputs, (list, tuple)):
            raise ValueError(
                f"{name} layer must be called on a list of inputs, [query, "
                "value] or [query, value, key], or with `query`, `key` and "
                f"`value`. Received: inputs={inputs}"
            )
        if len(inputs) not in (2, 3):
            raise ValueError(
                f"{name} layer accepts an inputs list of length 2 or 3, "
                "[query, value] or [query, value, key]. Received: "
                f"len(inputs)={len(inputs)}"
            )
        if mask is not None and not isinstance(mask, (list, tuple)):
            raise ValueError(
                f"{name} layer mask must be a list, [query_mask, value_mask]. "
                f"Received: mask={mask}"
            )
        if mask is not None and len(mask) not in (2, 3):
            raise ValueError(
                f"{name} layer accepts a mask list of length 2 or 3, "
                "[query_mask, value_mask] and perhaps key_mask. Received: "
                f"len(mask)={len(mask)}"
            )
