"""Loops, and what they gather, for the blockwise kernel.

A step takes as much memory as it is given, and leaves it to the next one: few
run side by side.
"""

from __future__ import annotations

import math

import tensorflow as tf

from keras_attention.ops.blockwise_geometry import (
    Geometry,
    Piece,
    length_of,
    lengths_of,
)
from keras_attention.ops.blockwise_inputs import pad
from keras_attention.ops.in_place import is_possible, overwrite

# While one step waits for its threads, another computes. Measured on two cores:
# a fifth to a third of the time, and nothing more with three.
SIDE_BY_SIDE = 2


def loop(steps, body, *state, side_by_side=1):
    """Calls `state = body(step, *state)` for each step and returns it last.

    Args:
        steps: Number of steps.
        body: The function to call.
        *state: What it is given first.
        side_by_side: How many steps may be under way at once, as far as they
            do not wait for the state of the one before.
    """
    if isinstance(steps, int) and steps in (0, 1):
        return body(0, *state) if steps else state

    def count(step, *state):
        return (step + 1, *body(step, *state))

    _, *state = tf.while_loop(
        lambda step, *_: step < steps,
        count,
        (tf.constant(0), *state),
        parallel_iterations=side_by_side,
    )
    return state


def loop_over_heads(geometry: Geometry, steps, body, *state):
    """As `loop`, where each step is a `loop_over_blocks` of its own."""
    has_blocks = isinstance(geometry.blocks, int) and geometry.blocks > 1
    side_by_side = 1 if has_blocks else SIDE_BY_SIDE
    return loop(steps, body, *state, side_by_side=side_by_side)


def loop_over_blocks(geometry: Geometry, body, *state):
    """As `loop`, for the blocks of one step."""
    return loop(geometry.blocks, body, *state, side_by_side=SIDE_BY_SIDE)


def loop_over_tiles(geometry: Geometry, block, body, *state):
    """As `loop`, for the `tiles_before` a block."""
    tiles = geometry.tiles_before(block)
    return loop(tiles, body, *state, side_by_side=SIDE_BY_SIDE)


def array(dtype, size, shape) -> tf.TensorArray:
    """Returns an array of `size` tensors of one shape, None where unknown."""
    shape = [n if isinstance(n, int) else None for n in shape]
    return tf.TensorArray(
        dtype, size, element_shape=shape, clear_after_read=False
    )


class Rows:
    """Gathers rows `(heads, length, width)`, some heads at a time, in a loop.

    They are written to their place in one tensor, which is the result. XLA
    cannot write to a place that it does not know beforehand; there, they are
    listed and joined, which takes memory for the result twice.

    Args:
        dtype: Dtype of the result.
        shape: Shape of the result, three lengths.
        together: Number of heads at a time, which divides that of all.

    Attributes:
        dtype: Dtype of the result.
        shape: Shape of the result.
        state: What to begin the loop with.
    """

    def __init__(self, dtype, shape, together):
        self.dtype, self.shape = dtype, tuple(shape)
        self._together = together
        self._in_place = is_possible()
        if self._in_place:
            size = math.prod(self.shape)
            self.state = tf.raw_ops.Empty(shape=[size], dtype=dtype)
        else:
            steps = shape[0] // together
            self.state = array(dtype, steps, (together, *shape[1:]))

    def write(self, state, step, rows):
        """Writes the rows of a step and returns the state."""
        rows = tf.cast(rows, self.dtype)
        if not self._in_place:
            return state.write(step, rows)
        first = tf.cast(step, "int64") * tf.size(rows, "int64")
        return overwrite(state, [first], tf.reshape(rows, [-1]))

    def result(self, state):
        """Returns the rows of all heads, `(heads, length, width)`."""
        rows = state if self._in_place else state.stack()
        return tf.reshape(rows, self.shape)


class Blocks:
    """Gathers what the blocks of one step find for their queries.

    Args:
        geometry: The `Geometry` of the call.
        together: Number of heads in a step, k * G.
        rows: The `Rows` that the step's belong to.

    Attributes:
        array: What to begin the loop with.
    """

    def __init__(self, geometry: Geometry, together, rows: Rows):
        _, self._length, width = rows.shape
        self._heads = geometry.together, together // geometry.together
        self._rows = geometry.rows
        self._dtype = rows.dtype
        keys, groups = self._heads
        shape = (keys, width, groups * self._rows)
        self.array = array(rows.dtype, geometry.blocks, shape)

    def write(self, array, block, columns):
        """Writes a block's `(k, width, G * rows)`; returns the array."""
        return array.write(block, tf.cast(columns, self._dtype))

    def join(self, array):
        """Returns the rows `(k * G, length, width)`."""
        keys, groups = self._heads
        columns = array.stack()
        blocks, _, width, _ = lengths_of(columns)
        columns = tf.reshape(columns, (blocks, keys, width, groups, self._rows))
        rows = tf.transpose(columns, (1, 3, 0, 4, 2))
        rows = tf.reshape(rows, (keys * groups, blocks * self._rows, width))
        return rows[:, : self._length]


class WholeSum:
    """Adds up rows `(k, S, X)`, of which each block gives all.

    Args:
        geometry: The `Geometry` of the call.
        like: Padded tensor of the shape and dtype of the sum.
    """

    def __init__(self, geometry: Geometry, like):
        self._geometry = geometry
        self.state = (tf.zeros_like(like),)

    def add(self, state, block, pieces: list[Piece], parts):
        """Returns the state with `parts` `(k, size, X)` of a block added."""
        del block, pieces
        return (state[0] + parts[0],)

    def result(self, state):
        """Returns the sum `(k, S, X)` without padding."""
        return self._geometry.without_padding(state[0])


class TiledSum:
    """Adds up rows `(k, S, X)`, of which each block gives a beginning, or all.

    They are held by tile: what a block gives to one is added to that one only,
    at the cost of that one. Where blocks are not tiled, there is one.

    Args:
        geometry: The `Geometry` of the call.
        like: Padded tensor of the shape and dtype of the sum.
    """

    def __init__(self, geometry: Geometry, like):
        self._geometry = geometry
        heads, _, width = lengths_of(like)
        shape = (heads, geometry.tile, width)
        tiles = array(like.dtype, geometry.tiles, shape)
        zeros = tf.zeros((geometry.tiles, *shape), like.dtype)
        self.state = (tiles.unstack(zeros),)

    def add(self, state, block, pieces: list[Piece], parts):
        """Returns the state with `parts` `(k, size, X)` of a block added.

        They adjoin, within the tile after `tiles_before` the block, and are of
        known sizes: no piece is without one.
        """
        tile = self._geometry.tiles_before(block)
        behind = (tile + 1) * self._geometry.tile
        behind -= pieces[-1].start + pieces[-1].size
        rows = pad(tf.concat(parts, 1), (0, 0), (0, behind))
        return self.add_tile(state, tile, rows)

    def add_tile(self, state, tile, rows):
        """Returns the state with rows `(k, tile, X)` added to one tile."""
        return (state[0].write(tile, state[0].read(tile) + rows),)

    def result(self, state):
        """Returns the sum `(k, S, X)` without padding."""
        tiles = tf.transpose(state[0].stack(), (1, 0, 2, 3))
        heads, count, size, width = lengths_of(tiles)
        total = tf.reshape(tiles, (heads, count * size, width))
        return self._geometry.without_padding(total)


class RollingSum:
    """Adds up rows `(k, S, X)` of which each block gives one window.

    Only the rows that windows still to come overlap are held as a sum; those
    that no later window reaches are put away.

    Args:
        geometry: The `Geometry` of the call.
        like: Padded tensor of the shape and dtype of the sum.
    """

    def __init__(self, geometry: Geometry, like):
        self._geometry = geometry
        heads, _, self._width = lengths_of(like)
        shape = (heads, geometry.rows, self._width)
        done = array(like.dtype, geometry.blocks, shape)
        window = tf.zeros((heads, geometry.span, self._width), like.dtype)
        self.state = (window, done)

    def add(self, state, block, pieces: list[Piece], parts):
        """Returns the state with `parts` `(k, size, X)` of a block added."""
        del pieces
        total, done = state
        total = total + parts[0]
        rows = self._geometry.rows
        done = done.write(block, total[:, :rows])
        fresh = tf.zeros_like(total)[:, :rows]
        rolled = tf.concat([total[:, rows:], fresh], 1)
        return tf.ensure_shape(rolled, total.shape), done

    def result(self, state):
        """Returns the sum `(k, S, X)` without padding."""
        total, done = state
        geometry = self._geometry
        done = tf.transpose(done.stack(), (1, 0, 2, 3))
        heads = length_of(total, 0)
        done = tf.reshape(done, (heads, -1, self._width))
        open_rows = total[:, : geometry.span - geometry.rows]
        rolled = tf.concat([done, open_rows], 1)
        last = (geometry.blocks - 1) * geometry.rows + geometry.span
        behind = geometry.keys_in_all - geometry.first - last
        padded = pad(rolled, (0, 0), (geometry.first, behind))
        return geometry.without_padding(padded)


def kind_of_sum(geometry: Geometry):
    """Returns the class that adds up what blocks give to their keys."""
    if geometry.window is not None:
        return RollingSum
    by_tile = geometry.tiled or geometry.reaches_beginnings
    return TiledSum if by_tile else WholeSum


class BiasSum:
    """Adds up the gradient of a bias `(M, T, S)`, where T and S may be 1.

    Args:
        settings: The `Settings` of the call.
        geometry: The `Geometry` of the call.
        tensors: As `blockwise_inputs.flatten` returns them.
    """

    def __init__(self, settings, geometry: Geometry, tensors):
        self._geometry, self._bias = geometry, tensors["bias"]
        self._owners = tensors["bias_of"]
        self._shared = "bias" in settings.shared
        self._together = geometry.together * settings.groups_in(tensors)
        self._one_row, self._one_column = (n == 1 for n in self._bias.shape[1:])
        entries, *shape = lengths_of(self._bias)
        entries = array(self._bias.dtype, entries, shape)
        self.state = entries.unstack(tf.zeros_like(self._bias))

    def blocks(self, together, dtype) -> tf.TensorArray:
        """Returns an array for what each block of a step gives."""
        geometry = self._geometry
        heads = 1 if self._shared else together
        rows = 1 if self._one_row else geometry.rows
        columns = 1 if self._one_column else geometry.key_length
        return array(dtype, geometry.blocks, (heads, rows, columns))

    def of_block(self, pieces: list[Piece], scores):
        """Reduces gradients of scores `(k * G, rows, size)` to the bias's."""
        ones = (self._shared, self._one_row, self._one_column)
        axes = [axis for axis, one in enumerate(ones) if one]
        scores = tf.reduce_sum(scores, axes, keepdims=True)
        if self._one_column:
            return scores
        geometry = self._geometry
        if pieces[0].size is not None:
            heads, rows, _ = lengths_of(scores)
            zeros = (heads, rows, geometry.keys_in_all)
            zeros = tf.zeros(zeros, scores.dtype)
            start = pieces[0].start
            stop = start + sum(piece.size for piece in pieces)
            around = [zeros[:, :, :start], scores, zeros[:, :, stop:]]
            scores = tf.concat(around, 2)
        front, _ = geometry.key_padding
        return scores[:, :, front : front + geometry.key_length]

    def add(self, state, step, blocks) -> tf.TensorArray:
        """Returns the state with the blocks of a step added."""
        rows = blocks.stack()
        if self._one_row:
            rows = tf.reduce_sum(rows, 0)
        else:
            heads, columns = length_of(rows, 1), length_of(rows, 3)
            rows = tf.transpose(rows, (1, 0, 2, 3))
            rows = tf.reshape(rows, (heads, -1, columns))
            rows = rows[:, : self._geometry.query_length]
        rows = tf.cast(rows, self._bias.dtype)

        def add_one(number, state):
            owner = self._owners[step * self._together + number]
            return (state.write(owner, state.read(owner) + rows[number]),)

        return loop(length_of(rows, 0), add_one, state)[0]

    def result(self, state):
        """Returns the gradient `(M, T, S)`."""
        return state.stack()
