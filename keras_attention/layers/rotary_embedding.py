"""Positions as rotations of pairs of features."""

from __future__ import annotations

import keras
from keras import ops

from keras_attention.layers import arguments
from keras_attention.ops import positions as position_ops
from keras_attention.ops.inputs import check_inputs


@keras.saving.register_keras_serializable(package="keras_attention")
class RotaryEmbedding(keras.layers.Layer):
    """Rotates queries or keys by angles that grow with the position.

    The scores of rotated queries and keys depend on how far these are apart,
    not on where they stand. Angles are computed in float32 and cast last, so
    that positions stay apart in half precision.

    Args:
        max_wavelength: Longest wavelength, in units of `2 * pi` positions.
        scaling_factor: Positions are divided by it, to stretch a model to
            sequences longer than those that it was trained on.
        pairing: Which features turn together. "half": feature j with
            `j + H / 2`, as in Llama and the models of Hugging Face.
            "interleaved": feature 2j with `2j + 1`, as in the paper and
            GPT-J. Weights trained with one need it ever after.
        sequence_axis: The axis of positions in the inputs.
        feature_axis: The axis of features in the inputs, of even size.
        **kwargs: Arguments of `keras.layers.Layer`, such as `name`, `dtype`.

    Call arguments:
        inputs: Tensor such as `(B, T, N, H)`, or of other axes.
        start_index: Position of the first step, an integer or a scalar
            tensor, for decoding step by step.
        positions: Integer positions `(T,)` or `(B, T)`, which then replace
            those that are counted from `start_index`.

    Returns:
        A tensor shaped like the inputs, in the compute dtype. It carries
        the mask of the inputs.

    Raises:
        ValueError: An argument is out of range, or the width is odd.

    Example:

    >>> layer = RotaryEmbedding()
    >>> tuple(layer(keras.ops.ones((3, 5, 2, 4))).shape)
    (3, 5, 2, 4)

    Reference:
        [RoFormer](https://arxiv.org/abs/2104.09864)
    """

    def __init__(
        self,
        max_wavelength=10000,
        scaling_factor=1.0,
        pairing="half",
        sequence_axis=1,
        feature_axis=-1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.max_wavelength = arguments.positive_number(
            "max_wavelength", max_wavelength
        )
        self.scaling_factor = arguments.positive_number(
            "scaling_factor", scaling_factor
        )
        self.pairing = arguments.one_of(
            "pairing", pairing, ("half", "interleaved")
        )
        self.sequence_axis = sequence_axis
        self.feature_axis = feature_axis

    def build(self, input_shape):
        """Checks the axes; there are no weights to make.

        Args:
            input_shape: Shape of the inputs.
        """
        self._check_axes(input_shape)

    def call(self, inputs, start_index=0, positions=None):
        """Rotates each position by its angles."""
        self._check(inputs, positions)
        if positions is None:
            length = ops.shape(inputs)[self.sequence_axis]
            positions = ops.arange(length, dtype="int32")
            positions = positions + ops.cast(start_index, "int32")
        return position_ops.rotate(
            ops.cast(inputs, self.compute_dtype),
            positions,
            max_wavelength=self.max_wavelength,
            scaling_factor=self.scaling_factor,
            pairing=self.pairing,
            sequence_axis=self.sequence_axis,
            feature_axis=self.feature_axis,
        )

    def compute_output_shape(self, input_shape):
        """Returns the shape of the output, which is that of the inputs."""
        self._check_axes(input_shape)
        return tuple(input_shape)

    def compute_output_spec(self, inputs, start_index=0, positions=None):
        """Returns the symbolic output, after the checks that `call` makes."""
        self._check(inputs, positions)
        shape = self.compute_output_shape(inputs.shape)
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def get_config(self):
        """Returns every constructor argument, ready for JSON."""
        config = {
            "max_wavelength": self.max_wavelength,
            "scaling_factor": self.scaling_factor,
            "pairing": self.pairing,
            "sequence_axis": self.sequence_axis,
            "feature_axis": self.feature_axis,
        }
        return {**super().get_config(), **config}

    def _check(self, inputs, positions):
        check_inputs(inputs=inputs)
        self._check_axes(inputs.shape)
        position_ops.check(positions, inputs.shape, self.sequence_axis)

    def _check_axes(self, shape):
        rank = len(shape)
        axes = {self.sequence_axis % rank, self.feature_axis % rank}
        inside = all(
            -rank <= axis < rank
            for axis in (self.sequence_axis, self.feature_axis)
        )
        if len(axes) < 2 or not inside:
            raise ValueError(
                "`sequence_axis` and `feature_axis` must be two axes of the "
                f"inputs. Received: sequence_axis={self.sequence_axis}, "
                f"feature_axis={self.feature_axis}, "
                f"inputs.shape={tuple(shape)}"
            )
        width = shape[self.feature_axis]
        if width is None or width % 2:
            raise ValueError(
                "The features turn in pairs, so their number must be known "
                "and even: choose an even head width. Received: "
                f"inputs.shape={tuple(shape)}, "
                f"feature_axis={self.feature_axis}"
            )
