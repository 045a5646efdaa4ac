"""From model width to heads and back, and the norms of heads."""

from __future__ import annotations

import string

import keras
from keras import ops

from keras_attention.layers import arguments, head_positions, row_products
from keras_attention.ops import masks


def project(
    layer, name, input_shape, features, contracted="x", activation=None
):
    """Returns a built dense layer from the last axes to `features`.

    Args:
        layer: The attention layer, whose initializers, regularizers,
            constraints and dtype policy serve.
        name: Name of the dense layer.
        input_shape: Shape of its input.
        features: Shape that takes the place of the contracted axes.
        contracted: A letter for each of the last axes to contract.
        activation: Activation of the dense layer.
    """
    # Spelled out for the rank at hand: EinsumDense does not quantize an
    # equation with an ellipsis.
    lead = string.ascii_uppercase[: len(input_shape) - len(contracted)]
    letters = string.ascii_lowercase[: len(features)]
    dense = row_products.EinsumDense(
        f"{lead}{contracted},{contracted}{letters}->{lead}{letters}",
        output_shape=(*[None] * (len(lead) - 1), *features),
        activation=activation,
        bias_axes=letters if layer.use_bias else None,
        kernel_initializer=arguments.separate(layer.kernel_initializer),
        bias_initializer=arguments.separate(layer.bias_initializer),
        kernel_regularizer=layer.kernel_regularizer,
        bias_regularizer=layer.bias_regularizer,
        activity_regularizer=layer._activity_regularizer,
        kernel_constraint=layer.kernel_constraint,
        bias_constraint=layer.bias_constraint,
        dtype=layer.dtype_policy,
        name=name,
    )
    dense.build(input_shape)
    dense.input_spec = keras.layers.InputSpec(axes={-1: input_shape[-1]})
    return dense


def head_norm(layer, name):
    """Returns a norm with a weight for each feature of a head."""
    norm = keras.layers.RMSNormalization(dtype=layer.dtype_policy, name=name)
    norm.build((None, None, layer.num_heads, layer.key_dim))
    return norm


def normalize(norm, heads):
    """Returns heads `(..., H)` after a norm, or as they are for None.

    Computed in float32: in a half type, squares overflow.
    """
    if norm is None:
        return heads
    wide = keras.backend.result_type(heads.dtype, "float32")
    normal = ops.rms_normalization(
        ops.cast(heads, wide),
        scale=ops.cast(norm.scale, wide),
        axis=-1,
        epsilon=norm.epsilon,
    )
    return ops.cast(normal, heads.dtype)


def query_heads(layer, query, positions):
    """Returns the query heads `(B, T, N, H)` of a built layer."""
    heads = normalize(layer.query_norm, layer.query_dense(query))
    return head_positions.rotate(layer._position, heads, positions)


def key_and_value_heads(layer, key, value, visible, positions=None):
    """Returns key and value heads `(B, S, K, H)` of a built layer.

    Args:
        layer: A `MultiHeadAttention`.
        key: Tensor `(B, S, Dk)`.
        value: Tensor `(B, S, Dv)`.
        visible: Which inputs to project, `(B, S)`, or None for all.
        positions: Positions of the keys, or None if none count.
    """
    same = key is value
    value = masks.hide(value, visible)
    key = value if same else masks.hide(key, visible)
    heads = normalize(layer.key_norm, layer.key_dense(key))
    heads = head_positions.rotate(layer._position, heads, positions)
    return heads, layer.value_dense(value)
