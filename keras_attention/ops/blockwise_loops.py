"""Loops, and what they gather, for the blockwise kernel.

Nothing here runs two steps at once: the memory of a step is free for the
next one.
"""

from __future__ import annotations

import math

import tensorflow as tf

from keras_attention.ops.blockwise_geometry import (
    Geometry,
    Piece,
    length_of,
)
from keras_attention.ops.blockwise_inputs import pad


def loop(steps, body, *state):
    """Calls `state = body(step, *state)` for each step and returns it last."""

    def count(step, *state):
        return (step + 1, *body(step, *state))

    _, *state = tf.while_loop(
        lambda step, *_: step < steps,
        count,
        (tf.constant(0), *state),
        parallel_iterations=1,
    )
    return state


def array(dtype, size, shape) -> tf.TensorArray:
    """Returns an array of `size` tensors of one shape, None where unknown."""
    shape = [n if isinstance(n, int) else None for n in shape]
    return tf.TensorArray(
        dtype, size, element_shape=shape, clear_after_read=False
    )


class Rows:
    """Gathers rows `(heads, length, width)`, block by block, in a loop.

    Each block is written to its place in one tensor, which is the result. XLA
    cannot write to a place that it does not know beforehand; there, blocks
    are listed and joined, which takes memory for the result twice.

    Args:
        dtype: Dtype of the result.
        shape: Shape of the result, three lengths.
        geometry: The `Geometry` of the call.

    Attributes:
        state: What to begin the loop over heads with.
    """

    def __init__(self, dtype, shape, geometry: Geometry):
        self._dtype, self._geometry = dtype, geometry
        self.shape = tuple(shape)
        self._in_place = not compiles_with_xla()
        if self._in_place:
            self.state = tf.zeros((math.prod(self.shape),), dtype)
        else:
            self.state = array(dtype, shape[0], shape[1:])

    def of_head(self, state):
        """Returns what to begin the loop over the blocks of a head with."""
        if self._in_place:
            return state
        blocks, rows = self._geometry.blocks, self._geometry.rows
        return array(self._dtype, blocks, (rows, self.shape[2]))

    def write_block(self, state, head, block, rows):
        """Writes a block's rows and returns the head's state."""
        rows = tf.cast(rows, self._dtype)
        if not self._in_place:
            return state.write(block, rows)
        start = block * self._geometry.rows
        left = self.shape[1] - start
        return self._put(state, head, start, rows[:left])

    def end_head(self, state, head, head_state):
        """Returns the state after the last block of a head."""
        if self._in_place:
            return head_state
        rows = tf.reshape(head_state.stack(), (-1, self.shape[2]))
        return state.write(head, rows[: self.shape[1]])

    def write_head(self, state, head, rows):
        """Writes all rows of a head and returns the state."""
        rows = tf.cast(rows, self._dtype)
        if self._in_place:
            return self._put(state, head, 0, rows)
        return state.write(head, rows)

    def result(self, state):
        """Returns the rows of all heads, `(heads, length, width)`."""
        if self._in_place:
            return tf.reshape(state, self.shape)
        return state.stack()

    def _put(self, state, head, start, rows):
        _, length, width = (tf.cast(n, "int64") for n in self.shape)
        row = tf.cast(head, "int64") * length + tf.cast(start, "int64")
        begin = row * width
        end = begin + tf.size(rows, "int64")
        # On one axis, as that is copied whole and not number by number.
        written = tf.raw_ops.TensorStridedSliceUpdate(
            input=state,
            begin=[begin],
            end=[end],
            strides=tf.ones((1,), "int64"),
            value=tf.reshape(rows, [-1]),
        )
        return tf.ensure_shape(written, state.shape)


def compiles_with_xla() -> bool:
    """Returns whether the graph now built is to be compiled by XLA."""
    graph = tf.compat.v1.get_default_graph()
    while graph is not None:
        # TensorFlow has no public name for this. Where there is none at all,
        # the answer is the safe one.
        context = getattr(graph, "_get_control_flow_context", None)
        if context is None:
            return True
        if getattr(context(), "IsXLAContext", bool)():
            return True
        graph = getattr(graph, "outer_graph", None)
    return False


class WholeSum:
    """Adds up rows `(S, X)` of which each block gives a beginning.

    Args:
        geometry: The `Geometry` of the call.
        start: Tensor `(S, X)` to begin with.
    """

    def __init__(self, geometry: Geometry, start):
        self._geometry = geometry
        self.state = (pad(start, geometry.key_padding),)

    def add(self, state, block, pieces: list[Piece], parts):
        """Returns the state with `parts` `(size, X)` of a block added."""
        (total,) = state
        if pieces[0].size is None:
            return (total + parts[0],)
        # Filled up to the whole length by hand: XLA knows no padding by an
        # amount that differs from step to step.
        reached = sum(piece.size for piece in pieces)
        rest = tf.zeros_like(total)[reached:]
        added = tf.concat([*parts, rest], 0)[: self._geometry.keys_in_all]
        return (total + tf.ensure_shape(added, total.shape),)

    def result(self, state):
        """Returns the sum `(S, X)`."""
        front, _ = self._geometry.key_padding
        return state[0][front : front + self._geometry.key_length]


class RollingSum:
    """Adds up rows `(S, X)` of which each block gives one window.

    Only the rows that windows still to come overlap are held as a sum; those
    that no later window reaches are put away.

    Args:
        geometry: The `Geometry` of the call.
        start: Tensor `(S, X)` to begin with.
    """

    def __init__(self, geometry: Geometry, start):
        self._geometry, self._start = geometry, start
        width, dtype = length_of(start, 1), start.dtype
        done = array(dtype, geometry.blocks, (geometry.rows, width))
        self.state = (tf.zeros((geometry.span, width), dtype), done)

    def add(self, state, block, pieces: list[Piece], parts):
        """Returns the state with `parts` `(size, X)` of a block added."""
        total, done = state
        total = total + parts[0]
        rows = self._geometry.rows
        done = done.write(block, total[:rows])
        fresh = tf.zeros_like(total)[:rows]
        rolled = tf.concat([total[rows:], fresh], 0)
        return tf.ensure_shape(rolled, total.shape), done

    def result(self, state):
        """Returns the sum `(S, X)`."""
        total, done = state
        geometry = self._geometry
        done = tf.reshape(done.stack(), (-1, length_of(total, 1)))
        rolled = tf.concat([done, total[: geometry.span - geometry.rows]], 0)
        last = (geometry.blocks - 1) * geometry.rows + geometry.span
        behind = geometry.keys_in_all - geometry.first - last
        padded = pad(rolled, (geometry.first, behind))
        front, _ = geometry.key_padding
        return self._start + padded[front : front + geometry.key_length]


class BiasSum:
    """Adds up the gradient of a bias `(M, T, S)`, where T and S may be 1.

    Args:
        geometry: The `Geometry` of the call.
        bias: The bias.
        owners: Which of the M entries belongs to each head, `(heads,)`.
    """

    def __init__(self, geometry: Geometry, bias, owners):
        self._geometry, self._bias, self._owners = geometry, bias, owners
        self._one_row, self._one_column = (n == 1 for n in bias.shape[1:])
        entries = array(bias.dtype, length_of(bias, 0), bias.shape[1:])
        self.state = entries.unstack(tf.zeros_like(bias))

    def blocks(self, dtype) -> tf.TensorArray:
        """Returns an array for what each block of one head gives."""
        rows = 1 if self._one_row else self._geometry.rows
        columns = 1 if self._one_column else self._geometry.key_length
        return array(dtype, self._geometry.blocks, (rows, columns))

    def of_block(self, pieces: list[Piece], parts):
        """Turns gradients of scores, `(size, rows)`, to a block's rows."""
        rows = tf.concat(parts, 0)
        if self._one_row:
            rows = tf.reduce_sum(rows, 1, keepdims=True)
        if self._one_column:
            return tf.transpose(tf.reduce_sum(rows, 0, keepdims=True))
        if pieces[0].size is None:
            return tf.transpose(rows)
        geometry = self._geometry
        zeros = (geometry.keys_in_all, length_of(rows, 1))
        zeros = tf.zeros(zeros, rows.dtype)
        start = pieces[0].start
        stop = start + sum(piece.size for piece in pieces)
        rows = tf.concat([zeros[:start], rows, zeros[stop:]], 0)
        front, _ = geometry.key_padding
        return tf.transpose(rows[front : front + geometry.key_length])

    def add(self, state, number, blocks) -> tf.TensorArray:
        """Returns the state with the blocks of one head added."""
        rows = blocks.stack()
        if self._one_row:
            rows = tf.reduce_sum(rows, 0)
        else:
            columns = 1 if self._one_column else self._geometry.key_length
            rows = tf.reshape(rows, (-1, columns))
            rows = rows[: self._geometry.query_length]
        owner = self._owners[number]
        total = state.read(owner) + tf.cast(rows, self._bias.dtype)
        return state.write(owner, total)
