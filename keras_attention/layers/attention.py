"""Attention without projections, a drop-in for `keras.layers.Attention`."""

from __future__ import annotations

import keras
from keras import ops

from keras_attention.layers import arguments
from keras_attention.layers.list_attention import ListAttention
from keras_attention.ops import attention, dense
from keras_attention.ops.additive import additive_attention

SCORE_MODES = ("dot", "concat")


@keras.saving.register_keras_serializable(package="keras_attention")
class Attention(ListAttention):
    """Attends to values by an unscaled product, or sum, of query and key.

    Takes everything `keras.layers.Attention` takes, with the same weights,
    and is called on the same list. Unlike that layer it hides what is hidden
    entirely: a query that sees no key gets a context of zeros, NaN at padding
    stays there, and a mask that `key` carries counts beside the one of
    `value`. `ScaledDotProductAttention` divides by the square root of the
    width, as the paper does; this layer does not.

    Args:
        use_scale: Whether a learned number scales the scores.
        score_mode: "dot" for `q . k`, computed in linear memory where that
            is faster, or "concat" for the sum of `tanh(q + k)`, times a
            learned number, which holds a tensor `(..., T, S, D)`.
        dropout: Rate at which attention weights are dropped in training.
        seed: Integer that seeds the dropout.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        inputs: List of `query` `(B, T, D)`, or `(1, T, D)` for all rows,
            `value` `(B, S, Dv)` and, if it is not the value, `key`
            `(B, S, D)`.
        mask: List of a boolean `query_mask` `(B, T)`, `value_mask` `(B, S)`
            and perhaps `key_mask`, each True for tokens. They default to the
            masks that Keras carries with the inputs.
        training: Whether dropout is active.
        return_attention_scores: Whether to return the scores as well.
        use_causal_mask: Whether query t sees only keys s with `s <= t`.
        attention_mask: As in `ScaledDotProductAttention`.
        attention_bias: As in `ScaledDotProductAttention`.

    Returns:
        The context `(B, T, Dv)`, zero where the query is padding, or with
        `return_attention_scores` the tuple of it and the scores `(B, T, S)`,
        in training those after dropout, as in Keras and in no other layer
        here. Both in the compute dtype. A query that is padding is scored as
        one of zeros.

    Raises:
        TypeError: A mask is neither boolean nor integers.
        ValueError: An argument is out of range or shapes do not fit.

    Example:

    >>> query, value = keras.ops.ones((2, 3, 8)), keras.ops.ones((2, 5, 8))
    >>> tuple(Attention(use_scale=True)([query, value]).shape)
    (2, 3, 8)

    Reference:
        [Effective Approaches to Attention-based Neural Machine
        Translation](https://arxiv.org/abs/1508.04025)
    """

    def __init__(
        self,
        use_scale=False,
        score_mode="dot",
        dropout=0.0,
        seed=None,
        **kwargs,
    ):
        super().__init__(dropout=dropout, seed=seed, **kwargs)
        if score_mode not in SCORE_MODES:
            raise ValueError(
                "Invalid value for argument score_mode. Expected one of "
                f"{{'dot', 'concat'}}. Received: score_mode={score_mode!r}"
            )
        self.use_scale = use_scale
        self.score_mode = score_mode

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        config = {
            "use_scale": self.use_scale,
            "score_mode": self.score_mode,
            "dropout": self.dropout,
            "seed": self.seed,
        }
        return {**super().get_config(), **config}

    @classmethod
    def from_config(cls, config):
        """Returns the layer that a configuration describes."""
        mode = arguments.plain_name(config.get("score_mode", "dot"))
        return super().from_config({**config, "score_mode": mode})

    def _make_weights(self, query_shape, key_shape, value_shape):
        self.scale = self.concat_score_weight = None
        if self.use_scale:
            self.scale = self._number("scale")
        if self.score_mode == "concat":
            self.concat_score_weight = self._number("concat_score_weight")

    def _number(self, name):
        """Returns a weight that is one learned number, at first 1."""
        return self.add_weight(name=name, shape=(), initializer="ones")

    def compute_attention(
        self,
        query,
        key,
        value,
        mask,
        attention_bias=None,
        training=None,
        return_attention_scores=False,
    ):
        """Returns the context of each query, and the scores.

        As in Keras's layer, the scores are those that dropout left.
        """
        inputs = query, key, value, mask, attention_bias
        dropping = self._dropout_options(training)
        if not (dropping["dropout"] and return_attention_scores):
            return self._attend(
                *inputs,
                return_attention_scores=return_attention_scores,
                **dropping,
            )
        # The context is of weights that are not rounded to a half type yet.
        wide = keras.backend.result_type(self.compute_dtype, "float32")
        wide_inputs = (ops.cast(x, wide) for x in (query, key, value))
        _, weights = self._attend(
            *wide_inputs, mask, attention_bias, return_attention_scores=True
        )
        rate, seed = dropping["dropout"], dropping["seed"]
        weights = dense.drop(weights, rate, seed)
        context = dense.average(weights, ops.cast(value, wide))
        return tuple(
            ops.cast(x, self.compute_dtype) for x in (context, weights)
        )

    def _attend(self, query, key, value, mask, bias, **options):
        """Returns context and weights, in the dtype of the inputs."""
        query = self._scaled(query)
        if self.score_mode == "dot":
            return attention.attend(
                query, key, value, mask, bias=bias, scale=1.0, **options
            )
        weight = ops.cast(self.concat_score_weight, self.compute_dtype)
        return additive_attention(
            query,
            self._scaled(key),
            value,
            ops.broadcast_to(weight, (query.shape[-1],)),
            mask,
            attention_bias=bias,
            **options,
        )

    def _scaled(self, tensor):
        """Returns a tensor times the scale, if there is one."""
        if self.scale is None:
            return tensor
        return tensor * ops.cast(self.scale, tensor.dtype)
