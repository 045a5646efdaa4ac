"""Signatures that prepare their inputs: raw strings and `tf.Example`s."""

import tensorflow as tf

from keras_attention.export.interface import SignatureError


def text_function(serve, interface, preprocessing):
    """Takes raw strings where the model takes ids.

    Args:
        serve: The function made by `serving_function`.
        interface: The `Interface` of the model.
        preprocessing: A layer that turns strings `(B,)` into the only input,
            or into a dictionary of inputs by name; its input is named
            `text`. Or a dictionary from input names to such layers: those
            inputs take strings under their own names, others stay as they
            are.

    Returns:
        A `tf.function` with the outputs of `serve`.
    """
    specs = {spec.name: spec for spec in interface.specs}
    if isinstance(preprocessing, dict):
        layers = preprocessing
        unknown = sorted(set(layers) - set(specs))
        if unknown:
            raise SignatureError(
                "`preprocessing` must have names of inputs for keys, which "
                f"are {sorted(specs)}. Received: unknown keys {unknown}"
            )
        signature = [
            _strings(name) if name in layers else spec
            for name, spec in specs.items()
        ]
    else:
        layers = None
        signature = [_strings("text")]

    @tf.function(input_signature=signature, autograph=False)
    def text(*inputs):
        if layers is None:
            values = _as_inputs(preprocessing(inputs[0]), specs)
        else:
            values = {
                name: layers[name](x) if name in layers else x
                for (name, x) in zip(specs, inputs, strict=True)
            }
        return serve(
            *(_fit(values[name], spec) for name, spec in specs.items())
        )

    return text


def examples_function(serve, interface):
    """Takes serialized `tf.Example`s with one feature per input.

    Args:
        serve: The function made by `serving_function`.
        interface: The `Interface` of the model.

    Returns:
        A `tf.function` of strings `(B,)`, named `examples`, with the outputs
        of `serve`; None where a `tf.Example` cannot hold an input.
    """
    if any(_feature(spec) is None for spec in interface.specs):
        return None
    specs = {spec.name: spec for spec in interface.specs}
    features = {name: _feature(spec) for name, spec in specs.items()}

    @tf.function(input_signature=[_strings("examples")], autograph=False)
    def examples(serialized):
        parsed = tf.io.parse_example(serialized, features)
        return serve(
            *(_fit(_rows(parsed[n], spec), spec) for n, spec in specs.items())
        )

    return examples


def _strings(name):
    return tf.TensorSpec((None,), tf.string, name=name)


def _as_inputs(value, specs):
    if isinstance(value, dict) and set(value) == set(specs):
        return value
    if not isinstance(value, dict) and len(specs) == 1:
        return dict.fromkeys(specs, value)
    raise SignatureError(
        "`preprocessing` must return a tensor for a model of one input, or a "
        f"dictionary of all inputs, which are {sorted(specs)}. "
        f"Received: {value}"
    )


def _feature(spec):
    """How a `tf.Example` holds one row of an input; None if it cannot."""
    dtype = spec.dtype
    if dtype.is_integer or dtype.is_bool:
        dtype = tf.int64
    elif dtype.is_floating:
        dtype = tf.float32
    elif dtype != tf.string:
        return None
    if spec.shape.rank in (None, 0):
        return None
    row = spec.shape[1:]
    if row.is_fully_defined():
        return tf.io.FixedLenFeature(row, dtype)
    if row[1:].is_fully_defined():
        return tf.io.RaggedFeature(dtype, row_splits_dtype=tf.int64)
    return None


def _rows(value, spec):
    """Cuts the flat values of each example into rows of the input's width."""
    width = spec.shape[2:].num_elements() if spec.shape.rank > 2 else 1
    if not isinstance(value, tf.RaggedTensor) or spec.shape.rank == 2:
        return value
    return tf.RaggedTensor.from_row_splits(
        tf.reshape(value.values, (-1, *spec.shape[2:])),
        value.row_splits // width,
    )


def _fit(value, spec):
    """Pads ragged rows, and gives a batch of empty rows one position."""
    if isinstance(value, tf.RaggedTensor):
        value = value.to_tensor()
    if spec.dtype != tf.string:
        value = tf.cast(value, spec.dtype)
    wanted, given = spec.shape[1:], value.shape[1:]
    if not wanted.is_compatible_with(given) or any(
        want is not None and got is None
        for want, got in zip(wanted, given, strict=True)
    ):
        raise SignatureError(
            f"`preprocessing` must give the input {spec.name!r} the shape "
            f"{tuple(spec.shape)}; a text layer has `output_sequence_length` "
            f"for that. Received: shape={tuple(value.shape)}"
        )
    if wanted.rank and wanted[0] is None:
        missing = tf.maximum(1 - tf.shape(value)[1], 0)
        paddings = [[0, 0], [0, missing], *[[0, 0]] * (wanted.rank - 1)]
        filler = "" if spec.dtype == tf.string else tf.cast(0, spec.dtype)
        value = tf.pad(value, paddings, constant_values=filler)
    return tf.ensure_shape(value, spec.shape)
