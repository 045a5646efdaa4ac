"""What multi-head attention does between its projections, to be overridden."""

from __future__ import annotations

from keras_attention.layers.keras_overrides import KerasOverrides
from keras_attention.ops import attention


class AttentionHook(KerasOverrides):
    """Attends from query heads to key and value heads.

    For a layer with `dropout` and `flash_attention`.
    """

    dropout: float
    flash_attention: bool | None

    def compute_attention(
        self,
        query,
        key,
        value,
        mask,
        attention_bias=None,
        scale=None,
        training=None,
        return_attention_scores=False,
    ):
        """Returns the context of each query head, and the scores.

        Subclasses override this method to attend in another way. To change
        the inputs alone, such as the scale or the mask, call `super()` with
        them: either kernel runs then, by `flash_attention`.

        Args:
            query: Query heads `(B, N, T, H)`. Several `attention_axes` are
                one here, and any axes left over come after B.
            key: Key heads `(B, K, S, H)`, finite at hidden positions.
            value: Value heads `(B, K, S, Hv)`, likewise.
            mask: A `keras_attention.ops.AttentionMask` of all masks and of
                what the bias hides. `mask.dense(T, S)` is a tensor of it,
                `mask.restricted_to(visible)` hides where `visible` is False.
            attention_bias: Additive bias that broadcasts to `(B, N, T, S)`,
                or None.
            scale: Number, or tensor `()`, that similarities are multiplied
                by. Defaults to `1 / sqrt(H)`.
            training: Whether dropout is active.
            return_attention_scores: Whether the scores are wanted.

        Returns:
            A tuple of the context `(B, N, T, Hv)` and the scores
            `(B, N, T, S)`, which may be None where they are not wanted.
        """
        self.attention_path = attention.kernel_for(
            query, key, mask, self.flash_attention, return_attention_scores
        )
        return attention.attend(
            query,
            key,
            value,
            mask,
            bias=attention_bias,
            scale=scale,
            dropout=self.dropout if training else 0.0,
            seed=self._dropout_layer and self._dropout_layer.seed_generator,
            return_attention_scores=return_attention_scores,
            flash_attention=self.flash_attention,
        )

    def _ignores_hidden_keys(self, query, attended, training, scores) -> bool:
        """Whether hidden keys may be anything, NaN included.

        Args:
            query: Query heads.
            attended: What they attend to, see `preparation.Attended`.
            training: Whether there will be gradients, which would meet them.
            scores: Whether the scores are wanted.
        """
        if training or not _is_ours(type(self).compute_attention):
            return False
        return "dense" == attention.kernel_for(
            query, attended.key, attended.mask, self.flash_attention, scores
        )


def _is_ours(method) -> bool:
    return method is AttentionHook.compute_attention
