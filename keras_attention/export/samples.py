"""Inputs made up for a signature: to check it, warm it up and show it."""

import re

import numpy as np
import tensorflow as tf

_WORDS = "the film was not good but very long and i liked it".split()
_OUT_OF_RANGE = re.compile(r"is not in \[0, (\d+)\)")
_LARGEST_ID = 1000
_IMAGE_SIDE = 32


class Samples:
    """Makes inputs of any batch size and length that a signature takes.

    Args:
        specs: Dictionary from input names to `tf.TensorSpec`.
        examples_of: Specs of the inputs that serialized `tf.Example`s hold,
            for the signature whose only input is `examples`.
        bounds: Dictionary from input names to the number of ids; see
            `find_bounds`.
        words: Strings to make texts of, for a model that knows no others.
            Each stands alone then.
    """

    def __init__(self, specs, examples_of=None, bounds=None, words=None):
        self.specs = specs
        self.bounds = bounds or {}
        self.words = words
        self.examples_of = examples_of if set(specs) == {"examples"} else None

    @property
    def has_padding(self):
        """Whether shorter rows are filled up with an id that stands for it."""
        specs = self.examples_of or self.specs
        return any(
            spec.dtype == tf.string
            or (spec.dtype.is_integer and _open_length(spec))
            for spec in specs.values()
        )

    @property
    def has_length(self):
        """Whether any input has an open length."""
        specs = self.examples_of or self.specs
        return self.has_padding or any(map(_open_length, specs.values()))

    @property
    def batch_size(self):
        """The batch size that the inputs fix; None where it is open."""
        sizes = [n for spec in self.specs.values() for n in spec.shape[:1]]
        return next((size for size in sizes if size is not None), None)

    def rows(self, lengths, seed=0):
        """Makes one row per length; each is the same alone as in a batch.

        Args:
            lengths: Number of positions of each row.
            seed: Makes other rows.

        Returns:
            A list of dictionaries from input names to arrays without batch
            axis.
        """
        return [
            self._row(np.random.default_rng((seed, number)), length)
            for number, length in enumerate(lengths)
        ]

    def batch(self, rows):
        """Stacks rows, filled up with zeros to the longest.

        Args:
            rows: A list such as `rows` returns.

        Returns:
            A dictionary from input names to arrays.
        """
        return {
            name: pad_rows([row[name] for row in rows]) for name in self.specs
        }

    def make(self, batch_size, length, seed=0):
        """Makes a batch of rows of one length."""
        return self.batch(self.rows([length] * batch_size, seed))

    def _row(self, random, length):
        if self.examples_of:
            inner = Samples(self.examples_of, bounds=self.bounds)
            row = inner._row(random, length)
            return {"examples": np.array(_example(row), object)}
        return {
            name: self._value(random, name, spec, length)
            for name, spec in self.specs.items()
        }

    def _value(self, random, name, spec, length):
        shape = _row_shape(spec, length)
        if spec.dtype == tf.string:
            return _texts(random, shape, length, self.words)
        dtype = spec.dtype.as_numpy_dtype
        if spec.dtype.is_bool or "mask" in name:
            return np.ones(shape, dtype)
        if spec.dtype.is_integer:
            bound = self.bounds.get(name, 2)
            return random.integers(min(1, bound - 1), bound, shape, dtype)
        return random.normal(size=shape).astype(dtype)


def find_bounds(specs, run, words=None):
    """Finds how many ids each integer input knows, by trying a large one.

    Args:
        specs: Dictionary from input names to `tf.TensorSpec`.
        run: Callable that runs a batch of inputs and raises on errors.
        words: As in `Samples`.

    Returns:
        Dictionary from input names to the smallest id out of range.
    """
    bounds = {}
    for name, spec in specs.items():
        if not spec.dtype.is_integer or "mask" in name:
            continue
        largest = min(_LARGEST_ID, spec.dtype.max)
        inputs = Samples(specs, words=words).make(1, 2)
        inputs[name] = np.full_like(inputs[name], largest)
        bounds[name] = largest + 1
        try:
            run(inputs)
        except Exception as error:
            found = _OUT_OF_RANGE.search(str(error))
            bounds[name] = int(found[1]) if found else 2
    return bounds


def pad_rows(rows, value=0):
    """Stacks arrays that may differ in shape, filled up at the end.

    Args:
        rows: Arrays of one rank and dtype.
        value: What to fill up with.

    Returns:
        An array with one more axis, of length `len(rows)`.
    """
    if not rows[0].ndim:
        return np.array([row[()] for row in rows], rows[0].dtype)
    shape = np.max([row.shape for row in rows], axis=0)
    return np.stack([enlarged(row, shape, value) for row in rows])


def enlarged(array, shape, value):
    """Returns an array filled up at the end of each axis.

    Args:
        array: Array of any dtype, of objects for strings.
        shape: The new shape, no smaller than the old in any axis.
        value: What to fill up with.
    """
    result = np.empty(shape, array.dtype)
    # Not by `np.full`, which drops zero bytes at the end of strings.
    result.fill(value)
    result[tuple(slice(size) for size in array.shape)] = array
    return result


def _texts(random, shape, length, known=None):
    """A text of as many words where a row holds one, else single words."""
    if known or shape not in ((), (1,)):
        words = np.array(random.choice(known or _WORDS, shape))
        return np.array([w.encode() for w in words.flat], object).reshape(shape)
    words = random.choice(_WORDS, max(length, 1))[:length]
    return np.array(" ".join(words).encode(), object).reshape(shape)


def _example(row):
    feature = {}
    for name, value in row.items():
        flat = value.ravel()
        if value.dtype.kind == "O":
            kind = {"bytes_list": tf.train.BytesList(value=list(flat))}
        elif value.dtype.kind == "f":
            kind = {"float_list": tf.train.FloatList(value=flat)}
        else:
            kind = {"int64_list": tf.train.Int64List(value=flat.astype(int))}
        feature[name] = tf.train.Feature(**kind)
    features = tf.train.Features(feature=feature)
    return tf.train.Example(features=features).SerializeToString()


def _open_length(spec):
    return spec.shape.rank is not None and None in list(spec.shape[1:])


def _row_shape(spec, length):
    shape = spec.shape[1:].as_list()
    side = length if len(shape) < 3 else max(length, _IMAGE_SIDE)
    return tuple(side if size is None else size for size in shape)
