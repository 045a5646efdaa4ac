"""An image as a sequence of patches."""

from __future__ import annotations

import keras
from keras import ops

from keras_attention.layers import arguments, row_products
from keras_attention.layers.quantized_parts import QuantizedParts
from keras_attention.ops.inputs import check_inputs


@keras.saving.register_keras_serializable(package="keras_attention")
class PatchEmbedding(QuantizedParts, keras.layers.Layer):
    """Cuts an image into patches and projects each to a vector.

    The projection is that of a `Conv2D` whose strides are its kernel size:
    its kernel, reshaped to `(rows * columns * channels, D)`, serves here.

    Args:
        patch_size: Height and width of a patch: an integer, or a pair. It
            must divide the size of the image.
        embed_dim: Width of the vectors, D.
        use_bias: Whether the projection has a bias.
        kernel_initializer: Initializer of the projection's kernel.
        bias_initializer: Initializer of the projection's bias.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        inputs: Images `(B, height, width, channels)`.

    Returns:
        A tensor `(B, patches, D)` in the compute dtype, patches in row-major
        order.

    Raises:
        ValueError: An argument is out of range, or `patch_size` does not
            divide the image.

    Example:

    >>> layer = PatchEmbedding(patch_size=4, embed_dim=16)
    >>> tuple(layer(keras.ops.ones((2, 8, 12, 3))).shape)
    (2, 6, 16)

    Reference:
        [An Image is Worth 16x16 Words](https://arxiv.org/abs/2010.11929)
    """

    def __init__(
        self,
        patch_size,
        embed_dim,
        use_bias=True,
        kernel_initializer="glorot_uniform",
        bias_initializer="zeros",
        **kwargs,
    ):
        super().__init__(**kwargs)
        pair = arguments.feature_shape("patch_size", patch_size)
        if pair is None or len(pair) > 2:
            raise ValueError(
                "`patch_size` must be a positive integer or a pair of them. "
                f"Received: patch_size={patch_size}"
            )
        self.patch_size = pair if len(pair) == 2 else pair * 2
        self.embed_dim = arguments.positive_integer("embed_dim", embed_dim)
        self.use_bias = use_bias
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.bias_initializer = keras.initializers.get(bias_initializer)
        self.projection = row_products.Dense(
            self.embed_dim,
            use_bias=use_bias,
            kernel_initializer=self.kernel_initializer,
            bias_initializer=self.bias_initializer,
            dtype=self.dtype_policy,
            name="projection",
        )

    def build(self, input_shape):
        """Makes the weights.

        Args:
            input_shape: Shape `(B, height, width, channels)` of the inputs.
        """
        self._count_patches(input_shape)
        rows, columns = self.patch_size
        features = rows * columns * input_shape[-1]
        self.projection.build((input_shape[0], None, features))

    def call(self, inputs):
        """Projects each patch."""
        check_inputs(inputs=inputs)
        down, across = self._count_patches(inputs.shape)
        rows, columns = self.patch_size
        channels = inputs.shape[-1]
        x = ops.reshape(inputs, (-1, down, rows, across, columns, channels))
        x = ops.transpose(x, (0, 1, 3, 2, 4, 5))
        x = ops.reshape(x, (-1, down * across, rows * columns * channels))
        return self.projection(x)

    def compute_output_spec(self, inputs):
        """Returns the symbolic output, after the check that `call` makes."""
        check_inputs(inputs=inputs)
        return super().compute_output_spec(inputs)

    def compute_output_shape(self, input_shape):
        """Returns `(B, patches, D)`."""
        down, across = self._count_patches(input_shape)
        return (input_shape[0], down * across, self.embed_dim)

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        config = {
            "patch_size": self.patch_size,
            "embed_dim": self.embed_dim,
            "use_bias": self.use_bias,
            "kernel_initializer": keras.initializers.serialize(
                self.kernel_initializer
            ),
            "bias_initializer": keras.initializers.serialize(
                self.bias_initializer
            ),
        }
        return {**super().get_config(), **config}

    def _count_patches(self, shape) -> tuple[int, int]:
        """Returns how many patches fit down and across, or refuses."""
        if len(shape) != 4 or None in shape[1:]:
            raise ValueError(
                "`inputs` must be images (B, height, width, channels) of a "
                "known size: resize images of several sizes, or pad them, "
                "ragged ones with `.to_tensor(shape=...)`. Received: "
                f"inputs.shape={tuple(shape)}"
            )
        height, width = shape[1:3]
        rows, columns = self.patch_size
        if height % rows or width % columns:
            raise ValueError(
                "`patch_size` must divide the height and the width of the "
                "image. Pad the image with `keras.layers.ZeroPadding2D`, or "
                f"choose another size. Received: patch_size={self.patch_size}"
                f", inputs.shape={tuple(shape)}"
            )
        return height // rows, width // columns
