"""The arguments of a generation, checked before anything runs."""

from __future__ import annotations

import dataclasses

import keras
import numpy as np

from keras_attention.layers import arguments
from keras_attention.models.beam_search import BeamLoop
from keras_attention.models.decoding_loop import SamplingLoop


@dataclasses.dataclass(frozen=True)
class GenerationSettings:
    """How the next token is chosen, and when a row ends.

    Attributes:
        end_token: Id that ends a row, or None for the full length.
        temperature: What logits are divided by before a token is drawn. 0
            takes the likeliest token.
        top_k: Number of likeliest tokens to draw from, or None for all.
        top_p: Draws from the fewest likeliest tokens whose probabilities
            add up to at least this, or None for all.
        num_beams: Number of prefixes that a beam search keeps; 1 for none.
        length_penalty: Power of the length by which a beam search divides
            the logarithm of a probability.

    Raises:
        TypeError: The end token is no integer.
        ValueError: A number is out of range, or two do not go together.

    Example:

    >>> GenerationSettings(temperature=0.8, top_p=0.9).num_beams
    1
    """

    end_token: int | None = None
    temperature: float = 0.0
    top_k: int | None = None
    top_p: float | None = None
    num_beams: int = 1
    length_penalty: float = 1.0

    def __post_init__(self):
        """Checks each number, and those that exclude each other."""
        _check_end_token(self.end_token)
        _at_least_zero("temperature", self.temperature)
        _at_least_zero("length_penalty", self.length_penalty)
        arguments.positive_integer("num_beams", self.num_beams)
        if self.top_k is not None:
            arguments.positive_integer("top_k", self.top_k)
        if self.top_p is not None:
            arguments.positive_number("top_p", self.top_p)
            if self.top_p > 1:
                raise ValueError(
                    "`top_p` must be a probability, above 0 and at most 1. "
                    f"Received: top_p={self.top_p}"
                )
        draws = self.temperature > 0
        if not draws and (self.top_k is not None or self.top_p is not None):
            raise ValueError(
                "`top_k` and `top_p` say what is drawn from, and at "
                "`temperature=0` nothing is drawn. Pass `temperature=1.0`. "
                f"Received: temperature={self.temperature}, "
                f"top_k={self.top_k}, top_p={self.top_p}"
            )
        if draws and self.num_beams > 1:
            raise ValueError(
                "A beam search draws nothing. Leave out `temperature` or "
                f"`num_beams`. Received: temperature={self.temperature}, "
                f"num_beams={self.num_beams}"
            )

    @classmethod
    def of(cls, options):
        """Returns the settings of a dictionary of fields.

        Raises:
            TypeError: An unknown name.
        """
        known = [field.name for field in dataclasses.fields(cls)]
        for name in options:
            if name not in known:
                raise TypeError(
                    f"Unknown keyword argument `{name}`. Settings of a "
                    f"generation are {', '.join(known)}. "
                    f"Received: {name}={options[name]!r}"
                )
        return cls(**options)

    def check_vocabulary(self, vocabulary_size, pad_id) -> None:
        """Refuses an end token that is never written."""
        if self.end_token is None:
            return
        is_token = 0 <= self.end_token < vocabulary_size
        if not is_token or self.end_token == pad_id:
            raise ValueError(
                "`end_token` must be an id of the vocabulary, from 0 to "
                f"{vocabulary_size - 1}, and not that of padding, {pad_id}, "
                f"which is never written. Received: end_token={self.end_token}"
            )

    def kind(self):
        """Returns the settings without their numbers.

        Settings of one kind make one graph, which takes `numbers()`.
        """
        return dataclasses.replace(
            self,
            temperature=float(self.temperature > 0),
            top_p=None if self.top_p is None else 1.0,
            length_penalty=1.0,
        )

    def numbers(self):
        """Returns temperature, `top_p` and length penalty, float32 `(3,)`."""
        values = (self.temperature, self.top_p or 1.0, self.length_penalty)
        # By an infinite temperature, logits of minus infinity divide to NaN.
        most = np.finfo("float32").max
        return np.minimum(values, most).astype("float32")

    def loop(self, decoder, numbers=None):
        """Returns the loop that does this with a decoder.

        Args:
            decoder: As in `decoding_loop`.
            numbers: As from `numbers()`, a tensor, for settings of this kind
                with other numbers. Defaults to those at hand.
        """
        heat, top_p, penalty = (
            self.numbers()
            if numbers is None
            else [numbers[i] for i in range(3)]
        )
        if self.num_beams > 1:
            return BeamLoop(decoder, self.end_token, self.num_beams, penalty)
        return SamplingLoop(
            decoder,
            self.end_token,
            heat if self.temperature > 0 else None,
            self.top_k,
            None if self.top_p is None else top_p,
        )


def read_ids(name, value, vocabulary_size, pad_id):
    """Returns ids as an int32 array `(B, T)`, short rows filled up.

    Args:
        name: Name of the argument.
        value: List of lists of ids, or an array.
        vocabulary_size: Number of ids.
        pad_id: What short rows are filled up with.

    Raises:
        TypeError: Ids are no integers.
        ValueError: There are no rows, one is empty, or an id is unknown.

    Example:

    >>> read_ids("prompts", [[4, 7], [9]], 10, 0).tolist()
    [[4, 7], [9, 0]]
    """
    rows = [np.asarray(row) for row in _rows_of(name, value)]
    for number, row in enumerate(rows):
        if row.size and (row.ndim != 1 or row.dtype.kind not in "iu"):
            raise TypeError(
                f"`{name}` must hold one row of integer ids for each "
                f"sequence, such as [[4, 7], [9]]. Received: row {number} of "
                f"dtype {row.dtype} and shape {row.shape}"
            )
        if not np.any(row != pad_id):
            raise ValueError(
                f"Each row of `{name}` must hold a token beside padding "
                f"({pad_id}). Received: row {number} of {name}="
                f"{row.tolist()}"
            )
        if row.min() < 0 or row.max() >= vocabulary_size:
            raise ValueError(
                f"The ids of `{name}` must be from 0 to "
                f"{vocabulary_size - 1}, those of the vocabulary. Received: "
                f"ids from {row.min()} to {row.max()} in row {number}"
            )
    ids = np.full((len(rows), max(map(len, rows))), pad_id, "int32")
    for target, row in zip(ids, rows, strict=True):
        target[: len(row)] = row
    return ids


def read_seeds(seed, rows):
    """Returns two int32 seeds for each row, `(rows, 2)`.

    Args:
        seed: An integer, a sequence of one for each row, or None to draw
            one, as `keras.utils.set_random_seed` decides.
        rows: Number of rows.

    Raises:
        TypeError: A seed is no integer.
        ValueError: Not as many seeds as rows.

    Example:

    >>> read_seeds(7, 2).tolist(), read_seeds([7, 3], 2).tolist()
    ([[7, 0], [7, 1]], [[7, 0], [3, 0]])
    """
    if seed is None:
        drawn = keras.random.randint((), 0, 2**31 - 1)
        seed = int(keras.ops.convert_to_numpy(drawn))
    seeds = np.asarray(seed)
    if seeds.dtype.kind not in "iu":
        raise TypeError(
            "`seed` must be an integer, or one for each row. "
            f"Received: seed={seed!r}"
        )
    if seeds.ndim and seeds.shape != (rows,):
        raise ValueError(
            f"`seed` must be an integer, or one for each of the {rows} rows. "
            f"Received: seed of shape {seeds.shape}"
        )
    number = np.zeros(rows) if seeds.ndim else np.arange(rows)
    pairs = np.stack(np.broadcast_arrays(seeds, number), axis=-1)
    # Large seeds keep their low bits.
    return pairs.astype("int64").astype("int32")


def _rows_of(name, value):
    if hasattr(value, "shape"):
        value = keras.ops.convert_to_numpy(value)
    if isinstance(value, (str, bytes, dict)) or not np.iterable(value):
        raise TypeError(
            f"`{name}` must be a list of lists of token ids, or an array "
            f"(B, T). Received: {name}={value!r}"
        )
    rows = list(value)
    if not rows or not all(np.iterable(row) for row in rows):
        raise ValueError(
            f"`{name}` must hold one row of token ids or more; a single "
            f"prompt goes in brackets, [[4, 7, 2]]. Received: {name}={value}"
        )
    return rows


def _check_end_token(value) -> None:
    is_integer = isinstance(value, (int, np.integer))
    if value is not None and (not is_integer or isinstance(value, bool)):
        raise TypeError(
            "`end_token` must be one id, an integer, or None. "
            f"Received: end_token={value!r}"
        )


def _at_least_zero(name, value) -> None:
    if arguments.number(name, value) < 0:
        raise ValueError(
            f"`{name}` must be at least 0. Received: {name}={value}"
        )
