"""Attention layers that are called on one list of inputs, like Keras's."""

from __future__ import annotations

import keras
from keras import ops

from keras_attention.layers.base_attention import BaseAttention
from keras_attention.ops import masks, shapes

_MASKS = ("query_mask", "value_mask", "key_mask")


class ListAttention(BaseAttention):
    """Takes `[query, value, key]` and `mask=[query_mask, value_mask]`.

    May be called with `(query, key, value)`, too. Keras keeps the call as it
    was made, since the order of tensors in it decides on that of the layers
    of a model, and hence on which weights of a file are whose.
    A subclass says how it scores and which weights it makes.

    Args:
        dropout: Rate at which attention weights are dropped in training.
        seed: Integer that seeds the dropout.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.
    """

    # As in Keras.
    scores_padding = True

    def __call__(self, *args, **kwargs):
        """Attends, given a list or `(query, key, value)`."""
        args, kwargs = self._arguments(args, kwargs)
        return super().__call__(*args, **kwargs)

    def build(
        self, query_shape=None, key_shape=None, value_shape=None, **by_name
    ):
        """Makes the weights.

        Args:
            query_shape: Shape `(..., T, D)` of the query, or the list of the
                shapes of query, value and, if it is another one, key.
            key_shape: Shape `(..., S, Dk)` of the key.
            value_shape: Shape `(..., S, Dv)` of the value.
            **by_name: That list as `input_shape`, its name in Keras.
        """
        query_shape = by_name.pop("input_shape", query_shape)
        if query_shape is None or by_name:
            raise TypeError(
                "`build` takes `input_shape`, the list of the shapes of query "
                "and value (and key), or `query_shape`, `key_shape` and "
                f"`value_shape`. Received: {sorted(by_name) or 'nothing'}"
            )
        shapes = self._three_shapes(query_shape, key_shape, value_shape)
        super().build(*shapes)
        self._make_weights(*shapes)
        query_shape, key_shape, value_shape = shapes
        self._list_of_shapes = (query_shape, value_shape, key_shape)

    def get_build_config(self):
        """Returns the shapes it was built for, as `build` takes them."""
        if self.built:
            return {"input_shape": list(self._list_of_shapes)}
        return None

    def call(
        self,
        query,
        key=None,
        value=None,
        query_mask=None,
        key_mask=None,
        value_mask=None,
        attention_mask=None,
        attention_bias=None,
        use_causal_mask=False,
        return_attention_scores=False,
        training=None,
        mask=None,
    ):
        """Attends from each query to the values."""
        options = self._unpacked(
            query,
            key,
            value,
            mask,
            query_mask=query_mask,
            key_mask=key_mask,
            value_mask=value_mask,
        )
        return super().call(
            **options,
            attention_mask=attention_mask,
            attention_bias=attention_bias,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
            training=training,
        )

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
        args, kwargs = self._arguments(args, kwargs)
        return super().compute_output_spec(**self._unpacked(*args, **kwargs))

    def _make_weights(self, query_shape, key_shape, value_shape):
        """Makes what weights there are."""

    def _arguments(self, args, kwargs):
        """Returns the arguments of `call`, whichever way they were given."""
        if "inputs" in kwargs:
            args = (kwargs.pop("inputs"), *args)
        listed = bool(args) and isinstance(args[0], (list, tuple))
        if not listed and (len(args) > 1 or {"key", "value"} & kwargs.keys()):
            return args, kwargs
        return self._as_in_keras(*args, **kwargs)

    def _as_in_keras(
        self,
        inputs,
        mask=None,
        training=None,
        return_attention_scores=False,
        use_causal_mask=False,
        **options,
    ):
        """Returns the arguments of Keras's layer: one list, and options."""
        self._check_list(inputs, mask)
        if mask is not None:
            options["mask"] = list(mask)
        if training is not None:
            options["training"] = training
        options["return_attention_scores"] = return_attention_scores
        options["use_causal_mask"] = use_causal_mask
        return (list(inputs),), options

    def _unpacked(self, query, key=None, value=None, mask=None, **options):
        """Returns query, key, value and their masks, each under its name."""
        if isinstance(query, (list, tuple)):
            query, value, key = (*query, query[-1])[:3]
            given = dict(zip(_MASKS, mask or (), strict=False))
            implicit = map(masks.get_implicit_mask, (query, value, key))
            for name, carried in zip(_MASKS, implicit, strict=True):
                # Keras fills in the name of the first argument with a list.
                if isinstance(options.get(name), (list, tuple)):
                    options[name] = None
                for choice in (given.get(name), carried):
                    if options.get(name) is None:
                        options[name] = choice
        joined = shapes.join_lead(query.shape, key.shape, value.shape)
        if options.get("query_mask") is not None:
            options["query_mask"] = _repeated(
                masks.as_boolean(options["query_mask"], "query_mask"),
                joined[0][:1],
                (key, value),
            )
        query, key, value = (
            _repeated(x, shape[:-2], (query, key, value))
            for x, shape in zip((query, key, value), joined, strict=True)
        )
        return {"query": query, "key": key, "value": value, **options}

    def _three_shapes(self, query_shape, key_shape, value_shape):
        """Returns the shapes of query, key and value."""
        if isinstance(query_shape[0], (list, tuple)):
            self._check_list(query_shape)
            query_shape, value_shape, key_shape = (
                *query_shape,
                query_shape[-1],
            )[:3]
        return shapes.join_lead(query_shape, key_shape, value_shape)

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


def _repeated(tensor, lead, others):
    """Returns `tensor` with leading axes of size one repeated.

    Args:
        tensor: Tensor whose leading axes are those of `lead`, or of size 1.
        lead: Static sizes that the axes are to have, None where unknown.
        others: Tensors, one of which has an axis of size None as it will be.
    """
    missing = [
        axis
        for axis, size in enumerate(lead)
        if tensor.shape[axis] == 1 and size != 1
    ]
    if not missing:
        return tensor
    shape = [*lead, *tensor.shape[len(lead) :]]
    if isinstance(tensor, keras.KerasTensor):
        return keras.KerasTensor(shape, tensor.dtype)
    sizes = list(ops.shape(tensor))
    for axis in missing:
        sizes[axis] = next(
            ops.shape(other)[axis] for other in others if other.shape[axis] != 1
        )
    return ops.broadcast_to(tensor, sizes)
