"""Token embeddings that also turn vectors back into logits."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from keras_attention.layers import arguments
from keras_attention.ops import masks
from keras_attention.ops.inputs import check_inputs

# Keras's layer of that name, for what it does to quantize itself. Releases
# before it came have the embedding alone.
_KERAS = getattr(keras.layers, "ReversibleEmbedding", None)
_Base: Any = _KERAS or keras.layers.Embedding


@keras.saving.register_keras_serializable(package="keras_attention")
class ReversibleEmbedding(_Base):
    """Looks up a vector for each token, and scores vectors against them.

    One table serves both ends of a language model: called with
    `reverse=True`, the layer returns the product of each vector with that of
    every token. Takes everything `keras.layers.ReversibleEmbedding` takes,
    with the same weights, and quantizes like it.

    Args:
        input_dim: Number of distinct ids, V.
        output_dim: Width of the vectors, D.
        tie_weights: Whether one table serves both ends. Otherwise there is a
            second one, `(D, V)`, for the way back.
        embeddings_initializer: Initializer of the tables.
        embeddings_regularizer: Regularizer of the table that is looked up.
        embeddings_constraint: Constraint on the table that is looked up.
        mask_zero: Whether id 0 is padding, so that the vectors carry a mask.
        reverse_dtype: Dtype of the logits, and of the product that gives
            them. Defaults to float32, whatever the policy.
        logit_soft_cap: Logits are bent to stay below this number, by
            `tanh(logits / cap) * cap`. None for no limit.
        **kwargs: Arguments of `keras.layers.Embedding`, such as `name`,
            `dtype`, `lora_rank`.

    Call arguments:
        inputs: Integer ids `(..., T)`; with `reverse`, vectors `(..., T, D)`.
        reverse: Whether to return logits.

    Returns:
        Vectors `(..., T, D)` in the compute dtype; with `reverse`, logits
        `(..., T, V)` in `reverse_dtype`. These carry the mask of the vectors.

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
        tie_weights=True,
        embeddings_initializer="uniform",
        embeddings_regularizer=None,
        embeddings_constraint=None,
        mask_zero=False,
        reverse_dtype=None,
        logit_soft_cap=None,
        **kwargs,
    ):
        # Not Keras's layer of this name, which need not be there.
        keras.layers.Embedding.__init__(
            self,
            arguments.positive_integer("input_dim", input_dim),
            arguments.positive_integer("output_dim", output_dim),
            embeddings_initializer=embeddings_initializer,
            embeddings_regularizer=embeddings_regularizer,
            embeddings_constraint=embeddings_constraint,
            mask_zero=mask_zero,
            **kwargs,
        )
        self.supports_masking = True
        self.tie_weights = tie_weights
        self.reverse_dtype = reverse_dtype
        self.logit_soft_cap = logit_soft_cap
        if logit_soft_cap is not None:
            self.logit_soft_cap = arguments.positive_number(
                "logit_soft_cap", logit_soft_cap
            )

    def build(self, input_shape=None):
        """Makes the tables."""
        if self.quantization_mode is not None:
            super().build(input_shape)
            return
        # Logits are made of the tables as they are, not of rounded ones.
        self._embeddings = self.add_weight(
            name="embeddings",
            shape=(self.input_dim, self.output_dim),
            initializer=self.embeddings_initializer,
            regularizer=self.embeddings_regularizer,
            constraint=self.embeddings_constraint,
            autocast=False,
        )
        if not self.tie_weights:
            self.reverse_embeddings = self.add_weight(
                name="reverse_embeddings",
                shape=(self.output_dim, self.input_dim),
                initializer=arguments.separate(self.embeddings_initializer),
                autocast=False,
            )
        self.built = True
        if self.lora_rank:
            self.enable_lora(self.lora_rank)

    def call(self, inputs, reverse=False):
        """Looks up ids, or scores vectors against the table."""
        check_inputs(inputs=inputs)
        if not reverse:
            rows = ops.take(self.embeddings, ops.cast(inputs, "int32"), axis=0)
            return self._masked(inputs, ops.cast(rows, self.compute_dtype))
        kernel = (
            ops.transpose(self.embeddings)
            if self.tie_weights
            else self.reverse_embeddings
        )
        dtype = self._logits_dtype
        logits = ops.matmul(ops.cast(inputs, dtype), ops.cast(kernel, dtype))
        if self.logit_soft_cap is not None:
            cap = self.logit_soft_cap
            logits = ops.multiply(ops.tanh(ops.divide(logits, cap)), cap)
        return logits

    def quantized_call(self, inputs, reverse=False):
        """Does what `call` does, by integers."""
        check_inputs(inputs=inputs)
        outputs = super().quantized_call(inputs, reverse=reverse)
        if reverse:
            return ops.cast(outputs, self._logits_dtype)
        return self._masked(inputs, outputs)

    def quantize(self, mode=None, type_check=True, config=None):
        """Turns the tables into integers, as Keras's layer does."""
        if _KERAS is None:
            raise NotImplementedError(
                "`quantize` needs a release of Keras with a "
                "`ReversibleEmbedding` of its own. Received: "
                f"keras.__version__={keras.__version__}"
            )
        super().quantize(mode, type_check=False, config=config)

    def save_own_variables(self, store):
        """Writes all tables; `Embedding` knows of one."""
        if _KERAS is None:
            keras.layers.Layer.save_own_variables(self, store)
        else:
            super().save_own_variables(store)

    def load_own_variables(self, store):
        """Reads all tables."""
        if _KERAS is None:
            keras.layers.Layer.load_own_variables(self, store)
        else:
            super().load_own_variables(store)

    def compute_mask(self, inputs, mask=None):
        """Returns the mask of the inputs; that of ids is set in `call`."""
        return mask

    def compute_output_shape(self, input_shape, reverse=False):
        """Returns the shape of the vectors, or of the logits."""
        if reverse:
            return (*input_shape[:-1], self.input_dim)
        return (*input_shape, self.output_dim)

    def compute_output_spec(self, inputs, reverse=False):
        """Returns the symbolic vectors, or logits."""
        check_inputs(inputs=inputs)
        shape = self.compute_output_shape(inputs.shape, reverse)
        if not reverse:
            vectors = keras.KerasTensor(shape, self.compute_dtype)
            return self._masked(inputs, vectors)
        if inputs.shape[-1] != self.output_dim:
            raise ValueError(
                f"Vectors must be as wide as the table, {self.output_dim}. "
                f"Received: inputs.shape={tuple(inputs.shape)}"
            )
        return keras.KerasTensor(shape, self._logits_dtype)

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        config = {
            "tie_weights": self.tie_weights,
            "reverse_dtype": self.reverse_dtype,
            "logit_soft_cap": self.logit_soft_cap,
        }
        return {**keras.layers.Embedding.get_config(self), **config}

    @property
    def _logits_dtype(self):
        return self.reverse_dtype or "float32"

    def _masked(self, ids, vectors):
        """Returns the vectors of ids, with the mask that goes with them."""
        if self.mask_zero:
            masks.set_implicit_mask(vectors, ops.not_equal(ids, 0))
        return vectors
