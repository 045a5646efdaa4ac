"""How multi-head attention makes the caches that it is called with."""

from __future__ import annotations

from keras import ops

from keras_attention.layers import preparation, projections


class KeyValueCache:
    """Makes caches `(B, 2, S, K, H)`, for a layer with keys and values.

    Keys are at index 0 of axis 1, values at index 1. A cache is a plain
    tensor: a call takes one and returns another.
    """

    def make_cache(self, batch_size, max_length):
        """Returns an empty cache, to be passed as `cache`.

        Args:
            batch_size: Number of rows, B.
            max_length: Number of positions to come, S. With a sliding window
                no more than `sliding_window` slots are made, which serve any
                number of positions.

        Returns:
            Zeros `(B, 2, S, K, H)` in the compute dtype.

        Example:

        >>> from keras_attention.layers import MultiHeadAttention
        >>> layer = MultiHeadAttention(8, 64, num_key_value_heads=2)
        >>> tuple(layer.make_cache(batch_size=3, max_length=100).shape)
        (3, 2, 100, 2, 64)
        """
        if self.sliding_window is not None:
            max_length = min(max_length, self.sliding_window)
        shape = (max_length, self.num_key_value_heads, self.key_dim)
        return ops.zeros((batch_size, 2, *shape), dtype=self.compute_dtype)

    def compute_cache(self, value, key=None, value_mask=None, key_mask=None):
        """Projects keys and values once, for many calls that attend to them.

        For cross-attention: pass the result as `cache`, and no
        `cache_update_index`, in place of projecting `value` at each step.

        Args:
            value: Tensor `(B, S, Dv)`.
            key: Tensor `(B, S, Dk)`. Defaults to `value`.
            value_mask: Boolean `(B, S)`. What stands at padding is left out;
                the mask itself has to be passed at each call as well.
                Defaults to the mask that Keras carries with `value`.
            key_mask: Boolean `(B, S)`. Defaults likewise.

        Returns:
            The cache `(B, 2, S, K, H)` in the compute dtype.

        Raises:
            ValueError: The layer is not built yet, or has no such cache.
        """
        preparation.check_cacheable(self, value)
        if not self.built:
            raise ValueError(
                "The layer has no weights yet: call it, or "
                "`build(query_shape, value_shape)`, before `compute_cache`."
            )
        key = value if key is None else key
        visible = preparation.visible_inputs(value, key, value_mask, key_mask)
        key, value = projections.key_and_value_heads(self, key, value, visible)
        return ops.stack([key, value], axis=1)
