"""Token embeddings that also turn vectors back into logits."""

from __future__ import annotations

import keras
from keras import ops

from keras_attention.layers import arguments


@keras.saving.register_keras_serializable(package="keras_attention")
class ReversibleEmbedding(keras.layers.Layer):
    """Looks up a vector for each token, and scores vectors against them.

    One table serves both ends of a language model: called with
    `reverse=True`, the layer returns the product of each vector with that of
    every token.

    Args:
        input_dim: Number of distinct ids, V.
        output_dim: Width of the vectors, D.
        embeddings_initializer: Initializer of the table.
        embeddings_regularizer: Regularizer of the table.
        embeddings_constraint: Constraint on the table.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        inputs: Integer ids `(..., T)`; with `reverse`, vectors `(..., T, D)`.
        reverse: Whether to return logits.

    Returns:
        Vectors `(..., T, D)` in the compute dtype; with `reverse`, logits
        `(..., T, V)` in float32, whatever the policy.

    Raises:
        ValueError: A number is out of range.

    Example:

    >>> layer = ReversibleEmbedding(50, 8)
    >>> vectors = layer(keras.ops.array([[4, 7, 2]]))
    >>> tuple(vectors.shape), tuple(layer(vectors, reverse=True).shape)
    ((1, 3, 8), (1, 3, 50))

    Reference:
        [Using the Output Embedding to Improve Language
        Models](https://arxiv.org/abs/1608.05859)
    """

    def __init__(
        self,
        input_dim,
        output_dim,
        embeddings_initializer="uniform",
        embeddings_regularizer=None,
        embeddings_constraint=None,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        # Ids must not be rounded.
        self.autocast = False
        self.input_dim = arguments.positive_integer("input_dim", input_dim)
        self.output_dim = arguments.positive_integer("output_dim", output_dim)
        self.embeddings_initializer = keras.initializers.get(
            embeddings_initializer
        )
        self.embeddings_regularizer = keras.regularizers.get(
            embeddings_regularizer
        )
        self.embeddings_constraint = keras.constraints.get(
            embeddings_constraint
        )

    def build(self, input_shape=None):
        """Makes the table."""
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.input_dim, self.output_dim),
            initializer=self.embeddings_initializer,
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
            # Logits are made of the table as it is, not of a rounded one.
            autocast=False,
        )

    def call(self, inputs, reverse=False):
        """Looks up ids, or scores vectors against the table."""
        if reverse:
            return ops.matmul(
                ops.cast(inputs, "float32"),
                ops.transpose(ops.cast(self.embeddings, "float32")),
            )
        rows = ops.take(self.embeddings, ops.cast(inputs, "int32"), axis=0)
        return ops.cast(rows, self.compute_dtype)

    def compute_output_spec(self, inputs, reverse=False):
        """Returns the symbolic vectors, or logits."""
        if not reverse:
            return keras.KerasTensor(
                (*inputs.shape, self.output_dim), self.compute_dtype
            )
        if inputs.shape[-1] != self.output_dim:
            raise ValueError(
                f"Vectors must be as wide as the table, {self.output_dim}. "
                f"Received: inputs.shape={tuple(inputs.shape)}"
            )
        return keras.KerasTensor(
            (*inputs.shape[:-1], self.input_dim), "float32"
        )

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        config = {
            "input_dim": self.input_dim,
            "output_dim": self.output_dim,
            "embeddings_initializer": keras.initializers.serialize(
                self.embeddings_initializer
            ),
            "embeddings_regularizer": keras.regularizers.serialize(
                self.embeddings_regularizer
            ),
            "embeddings_constraint": keras.constraints.serialize(
                self.embeddings_constraint
            ),
        }
        return {**super().get_config(), **config}
