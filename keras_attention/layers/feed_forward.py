"""The position-wise feed-forward network of a transformer block."""

from __future__ import annotations

import keras

from keras_attention.layers import arguments, row_products
from keras_attention.layers.quantized_parts import QuantizedParts
from keras_attention.ops.inputs import check_inputs


@keras.saving.register_keras_serializable(package="keras_attention")
class FeedForward(QuantizedParts, keras.layers.Layer):
    """Two dense layers with an activation between, at each position alone.

    Args:
        intermediate_dim: Width between the two layers, F.
        activation: Activation after the first layer.
        dropout: Rate at which the output is dropped in training.
        output_dim: Width of the output. Defaults to the width of the input.
        use_bias: Whether the two layers have biases.
        kernel_initializer: Initializer of the kernels.
        bias_initializer: Initializer of the biases.
        kernel_regularizer: Regularizer of the kernels.
        bias_regularizer: Regularizer of the biases.
        activity_regularizer: Regularizer of the output.
        kernel_constraint: Constraint on the kernels.
        bias_constraint: Constraint on the biases.
        seed: Integer that seeds the dropout.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        inputs: Tensor `(..., D)`, such as `(B, T, D)`.
        training: Whether dropout is active.

    Returns:
        A tensor `(..., D)`, or `(..., output_dim)`, in the compute dtype.
        It carries the mask of the inputs.

    Raises:
        ValueError: An argument is out of range, or the activation unknown.

    Example:

    >>> layer = FeedForward(32, activation="gelu")
    >>> tuple(layer(keras.ops.ones((2, 3, 8))).shape)
    (2, 3, 8)

    Reference:
        [Attention Is All You Need](https://arxiv.org/abs/1706.03762)
    """

    def __init__(
        self,
        intermediate_dim,
        activation="relu",
        dropout=0.0,
        output_dim=None,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        kernel_regularizer=None,
        bias_regularizer=None,
        activity_regularizer=None,
        kernel_constraint=None,
        bias_constraint=None,
        seed=None,
        **kwargs,
    ):
        super().__init__(activity_regularizer=activity_regularizer, **kwargs)
        self.supports_masking = True
        self.intermediate_dim = arguments.positive_integer(
            "intermediate_dim", intermediate_dim
        )
        self.activation = arguments.activation("activation", activation)
        self.dropout = arguments.rate("dropout", dropout)
        self.output_dim = output_dim
        if output_dim is not None:
            self.output_dim = arguments.positive_integer(
                "output_dim", output_dim
            )
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.kernel_regularizer = keras.regularizers.get(kernel_regularizer)
        self.bias_regularizer = keras.regularizers.get(bias_regularizer)
        self.kernel_constraint = keras.constraints.get(kernel_constraint)
        self.bias_constraint = keras.constraints.get(bias_constraint)
        self.seed = seed

        self.intermediate_dense = self._dense(
            "intermediate", self.intermediate_dim, self.activation
        )
        self._dropout_layer = keras.layers.Dropout(
            self.dropout, seed=seed, dtype=self.dtype_policy
        )

    def build(self, input_shape):
        """Makes the weights.

        Args:
            input_shape: Shape `(..., D)` of the inputs.
        """
        self.intermediate_dense.build(input_shape)
        self.output_dense = self._dense(
            "output", self.output_dim or input_shape[-1]
        )
        self.output_dense.build((*input_shape[:-1], self.intermediate_dim))

    def call(self, inputs, training=None):
        """Transforms each position."""
        check_inputs(inputs=inputs)
        x = self.output_dense(self.intermediate_dense(inputs))
        return self._dropout_layer(x, training=training)

    def compute_output_spec(self, inputs, training=None):
        """Returns the symbolic output, after the check that `call` makes."""
        check_inputs(inputs=inputs)
        return super().compute_output_spec(inputs)

    def compute_output_shape(self, input_shape):
        """Returns the shape of the output."""
        return (*input_shape[:-1], self.output_dim or input_shape[-1])

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        config = {
            "intermediate_dim": self.intermediate_dim,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.dropout,
            "output_dim": self.output_dim,
            "use_bias": self.use_bias,
            **arguments.serialize_dense(self, self.activity_regularizer),
            "seed": self.seed,
        }
        return {**super().get_config(), **config}

    def _dense(self, name, units, activation=None):
        return row_products.Dense(
            units,
            activation=activation,
            use_bias=self.use_bias,
            kernel_initializer=arguments.separate(self.kernel_initializer),
            bias_initializer=arguments.separate(self.bias_initializer),
            kernel_regularizer=self.kernel_regularizer,
            bias_regularizer=self.bias_regularizer,
            kernel_constraint=self.kernel_constraint,
            bias_constraint=self.bias_constraint,
            dtype=self.dtype_policy,
            name=name,
        )
