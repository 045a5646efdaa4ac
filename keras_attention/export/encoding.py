"""Values of a client as arrays and JSON that a signature takes."""

import base64

import numpy as np
import tensorflow as tf

from keras_attention.export.samples import pad_rows


def to_array(name, value, spec, pad_value=None):
    """Converts the value of one input, where nothing is lost.

    Args:
        name: Name of the input, for the messages.
        value: Array or nested list; a string or a list of strings for text.
        spec: The `tf.TensorSpec` of the input.
        pad_value: What fills up rows of different length; None refuses them.

    Returns:
        A NumPy array that fits the spec.

    Raises:
        ValueError: ragged rows, a wrong shape, or no rows.
        TypeError: values of a wrong type.
    """
    if spec.dtype == tf.string and isinstance(value, (str, bytes)):
        value = [value]
    if value is None or (isinstance(value, (list, tuple)) and not value):
        raise ValueError(f"The input {name!r} has no rows. Received: {value}")
    if pad_value is not None and spec.shape.rank and spec.shape.rank > 1:
        value = _padded(name, value, spec, pad_value)
    array = _dense(name, value, spec)
    wanted = spec.shape.as_list() if spec.shape.rank is not None else None
    if wanted is not None and not spec.shape.is_compatible_with(array.shape):
        hint = ""
        if array.ndim == len(wanted) - 1:
            hint = " One row needs a batch axis too: pass `[row]`."
        raise ValueError(
            f"The input {name!r} takes the shape {tuple(wanted)}. "
            f"Received: shape={array.shape}.{hint}"
        )
    if array.ndim and not len(array):
        raise ValueError(f"The input {name!r} has no rows.")
    return array


def _padded(name, value, spec, pad_value):
    """Makes rows of different length equally long."""
    if not isinstance(value, (list, tuple, np.ndarray)):
        return value
    if spec.dtype == tf.string:
        filler = pad_value if isinstance(pad_value, (str, bytes)) else ""
    elif spec.dtype.is_bool:
        filler = bool(pad_value)
    else:
        filler = _dense(f"{name} (pad_value)", pad_value, spec)[()]
    rows = [_dense(name, row, spec) for row in value]
    if not rows:
        return value
    return _fill_up(pad_rows(rows, filler), spec, filler)


def _fill_up(array, spec, pad_value):
    """Lengthens axes that the signature fixes, the batch left aside."""
    if array.ndim != spec.shape.rank:
        return array
    missing = [
        (0, max(0, (wanted or 0) - size)) if axis else (0, 0)
        for axis, (wanted, size) in enumerate(
            zip(spec.shape.as_list(), array.shape, strict=True)
        )
    ]
    return np.pad(array, missing, constant_values=pad_value)


def _dense(name, value, spec):
    """Converts to the dtype of the input, where nothing is lost."""
    try:
        array = np.array(value)
        ragged = array.flat if array.dtype == object else ()
    except ValueError:
        array, ragged = np.array(None), [value]
    if array.dtype == object and not _is_text(array):
        if not any(isinstance(x, (list, tuple, np.ndarray)) for x in ragged):
            raise _wrong_type(name, array, spec.dtype.name)
        raise ValueError(
            f"The input {name!r} has rows of different lengths. Pass "
            "`pad_value=0`, or whichever id the model masks, to fill them up."
        )
    if spec.dtype == tf.string:
        if not _is_text(array):
            raise _wrong_type(name, array, "strings")
        return array.astype(object)
    if not array.size:
        return array.astype(spec.dtype.as_numpy_dtype)
    kind = array.dtype.kind
    if spec.dtype.is_bool and kind != "b":
        raise _wrong_type(name, array, "booleans")
    if spec.dtype.is_integer:
        limits = np.iinfo(spec.dtype.as_numpy_dtype)
        if kind not in "iu":
            raise _wrong_type(name, array, "integers")
        if not (limits.min <= array.min() and array.max() <= limits.max):
            raise ValueError(
                f"The input {name!r} is {spec.dtype.name}. Received: values "
                f"from {array.min()} to {array.max()}"
            )
    if spec.dtype.is_floating and kind not in "iuf":
        raise _wrong_type(name, array, "numbers")
    return array.astype(spec.dtype.as_numpy_dtype)


def _is_text(array):
    return array.dtype.kind in "US" or (
        array.dtype == object
        and array.ndim > 0
        and all(isinstance(x, (str, bytes)) for x in array.flat)
    )


def _wrong_type(name, array, wanted):
    return TypeError(
        f"The input {name!r} takes {wanted}. Received: {array.dtype} values"
    )


def to_json(value):
    """Writes nested lists with bytes as the base64 objects of REST."""
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    return value
