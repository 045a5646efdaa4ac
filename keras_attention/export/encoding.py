"""Values of a client as arrays and JSON that a signature takes, and back."""

import base64

import numpy as np
import tensorflow as tf

from keras_attention.export.samples import enlarged, pad_rows


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
        ValueError: ragged rows, a wrong shape, numbers that do not fit the
            dtype, or no rows.
        TypeError: values of a wrong type.
    """
    label = f"input {name!r}"
    if spec.dtype == tf.string and isinstance(value, (str, bytes)):
        value = [value]
    if value is None or (isinstance(value, (list, tuple)) and not value):
        raise ValueError(f"The {label} has no rows. Received: {value}")
    if pad_value is not None and spec.shape.rank and spec.shape.rank > 1:
        value = _padded(label, value, spec, pad_value)
    array = _dense(label, value, spec, _FILL_UP)
    wanted = spec.shape.as_list() if spec.shape.rank is not None else None
    if wanted is not None and not spec.shape.is_compatible_with(array.shape):
        hint = ""
        if array.ndim == len(wanted) - 1:
            hint = " One row needs a batch axis too: pass `[row]`."
        raise ValueError(
            f"The {label} takes the shape {tuple(wanted)}. "
            f"Received: shape={array.shape}.{hint}"
        )
    if array.ndim and not len(array):
        raise ValueError(f"The {label} has no rows.")
    return array


def from_json(name, value, spec):
    """Reads one output of an answer.

    Args:
        name: Name of the output, for the messages.
        value: Nested lists of numbers, strings or `{"b64": ...}`.
        spec: The `tf.TensorSpec` of the output.

    Returns:
        A NumPy array; of objects for strings, which are `bytes` where they
        came as base64.

    Raises:
        ValueError: it is of another shape, or numbers do not fit the dtype.
        TypeError: values of a wrong type.
    """
    label = f"output {name!r}"
    if spec.dtype == tf.string:
        value = _decoded(value)
    array = _dense(label, value, spec)
    if not spec.shape.is_compatible_with(array.shape):
        raise ValueError(
            f"The {label} has the shape {spec.shape}. Received: "
            f"shape={array.shape}"
        )
    return array


_FILL_UP = (
    " Pass `pad_value=0`, or whichever id the model masks, to fill them up."
)


def _padded(label, value, spec, pad_value):
    """Makes rows of different length equally long."""
    if not isinstance(value, (list, tuple, np.ndarray)):
        return value
    if spec.dtype == tf.string:
        filler = pad_value if isinstance(pad_value, (str, bytes)) else ""
    elif spec.dtype.is_bool:
        filler = bool(pad_value)
    else:
        filler = _dense(f"{label} (pad_value)", pad_value, spec)[()]
    rows = [_dense(label, row, spec, _FILL_UP) for row in value]
    if not rows:
        return value
    return _fill_up(pad_rows(rows, filler), spec, filler)


def _fill_up(array, spec, pad_value):
    """Lengthens axes that the signature fixes, the batch left aside."""
    if array.ndim != spec.shape.rank:
        return array
    wanted = zip(spec.shape.as_list()[1:], array.shape[1:], strict=True)
    shape = [max(size, known or 0) for known, size in wanted]
    return enlarged(array, (len(array), *shape), pad_value)


def _dense(label, value, spec, advice=""):
    """Converts to the dtype of a spec, where nothing is lost.

    Args:
        label: What it is, for the messages.
        value: Array or nested lists.
        spec: The `tf.TensorSpec`.
        advice: What to do about rows of different lengths.
    """
    if spec.dtype == tf.string:
        return _strings(label, value, advice)
    try:
        array = np.array(value)
    except ValueError:
        raise _ragged(label, advice) from None
    if array.dtype == object:
        if any(isinstance(x, (list, tuple, np.ndarray)) for x in array.flat):
            raise _ragged(label, advice)
        raise _wrong_type(label, array, spec.dtype.name)
    if not array.size:
        return array.astype(spec.dtype.as_numpy_dtype)
    kind = array.dtype.kind
    if spec.dtype.is_bool and kind != "b":
        raise _wrong_type(label, array, "booleans")
    if spec.dtype.is_integer and kind not in "iu":
        raise _wrong_type(label, array, "integers")
    if spec.dtype.is_floating and kind not in "iuf" and not _is_half(array):
        raise _wrong_type(label, array, "numbers")
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(spec.dtype.as_numpy_dtype)
    _check_fit(label, array, converted, spec)
    return converted


def _check_fit(label, array, converted, spec):
    """Refuses numbers that a dtype cannot hold."""
    if array.dtype.kind in "iu":
        # As Python's numbers: there is no type of NumPy for all of them.
        kept = converted.astype(object) == array.astype(object)
    else:
        with np.errstate(invalid="ignore"):
            kept = np.isfinite(converted) | ~np.isfinite(array)
    if not np.all(kept):
        raise ValueError(
            f"The {label} is {spec.dtype.name}, which cannot hold all values. "
            f"Received: {array[~np.asarray(kept, bool)].flat[0]}"
        )


def _strings(label, value, advice):
    """Returns an array of str and bytes objects.

    NumPy's own types of strings drop the zero bytes at their end.
    """
    array = np.array(value, object)
    if any(isinstance(x, (list, tuple, np.ndarray)) for x in array.flat):
        raise _ragged(label, advice)
    wrong = [x for x in array.flat if not isinstance(x, (str, bytes))]
    if wrong:
        raise TypeError(
            f"The {label} takes strings. Received: {wrong[0]!r} of type "
            f"{type(wrong[0]).__name__}"
        )
    return array


def _ragged(label, advice):
    return ValueError(f"The {label} has rows of different lengths.{advice}")


def _is_half(array):
    return array.dtype.name in ("bfloat16", "float16")


def _wrong_type(label, array, wanted):
    return TypeError(
        f"The {label} takes {wanted}. Received: {array.dtype} values"
    )


def _decoded(value):
    """Reads nested lists with base64 objects of REST as bytes."""
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    if isinstance(value, dict) and set(value) == {"b64"}:
        return base64.b64decode(value["b64"], validate=True)
    return value


def to_json(value):
    """Writes nested lists with bytes as the base64 objects of REST."""
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    return value
