"""What only running a signature tells: lengths, masks, dropout, NaN."""

import textwrap

import numpy as np

from keras_attention.export.runner import RunError

_HALF_TOLERANCE = 3e-2
_TOLERANCE = 1e-4


class Trials:
    """Runs one signature in many ways and collects what is wrong.

    Args:
        name: Name of the signature.
        samples: `Samples` of its inputs.
        run: Callable from inputs to outputs, dictionaries of arrays.
        half: Whether the graph computes in half precision, which loosens
            the comparisons.
        random: Whether the graph draws random numbers.
    """

    def __init__(self, name, samples, run, half=False, random=False):
        self.name = name
        self.samples = samples
        self.run = run
        self.tolerance = _HALF_TOLERANCE if half else _TOLERANCE
        self.random = random
        self.lengths = [5, 9]

    def all(self, batch_sizes, lengths):
        """Makes all comparisons that the signature allows.

        Args:
            batch_sizes: Batch sizes to run, ints.
            lengths: Lengths to run, ints.

        Yields:
            Pairs of the name of a check and a list of problems, or None
            where the check does not apply.
        """
        failed, infinite = self.sizes(batch_sizes, lengths)
        unrestored = [text for text in failed if _is_unrestored(text)]
        yield "weights restored", unrestored
        if not self.lengths:
            yield "runs", None if unrestored else failed
            return
        yield "runs", []
        yield "any size", failed
        yield "finite", infinite
        try:
            yield from self._comparisons()
        except RunError as error:
            where = f"{self.name} with several rows"
            yield "any size", [f"{where}: {first_line(error)}"]

    def _comparisons(self):
        unstable = self.repeats()
        # Random numbers in the graph explain it, as dropout does.
        yield "dropout off", unstable if self.random else []
        yield "repeatable", [] if self.random else unstable
        yield "rows alone", None if unstable else self.alone()
        yield "padding hidden", None if unstable else self.padding()
        yield "empty rows", self.empty()

    def sizes(self, batch_sizes, lengths):
        """Runs every batch size at every length.

        Args:
            batch_sizes: Batch sizes, ints.
            lengths: Lengths, ints; the first alone where none is open.

        Returns:
            Two lists of problems: runs that fail, and values that are not
            finite.
        """
        lengths = lengths if self.samples.has_length else lengths[:1]
        failed, infinite, passed = [], [], set()
        for batch_size in batch_sizes:
            for length in lengths:
                inputs = self.samples.make(batch_size, length)
                where = f"{self.name} at batch {batch_size}, length {length}"
                try:
                    outputs = self.run(inputs)
                except RunError as error:
                    failed.append(f"{where}: {first_line(error)}")
                    continue
                passed.add(length)
                wrong = [k for k, v in outputs.items() if not _finite(v)]
                if wrong:
                    infinite.append(f"{where}: NaN or infinity in {wrong}")
        # The later comparisons use lengths that are known to run.
        self.lengths = sorted(passed)[-2:]
        return failed, infinite

    def repeats(self):
        """Compares two runs of one request, and two equal rows of it.

        Returns:
            A list of problems.
        """
        row = self.samples.rows(self.lengths[-1:], seed=1)[0]
        inputs = self.samples.batch([row, row, row])
        first, second = self.run(inputs), self.run(inputs)
        problems = []
        for name in first:
            if not _same_bits(first[name], second[name]):
                problems.append(f"{self.name}: {name} differs between runs")
            elif _has_rows(first[name], 3) and not all(
                self._close(first[name][0], other) for other in first[name][1:]
            ):
                problems.append(f"{self.name}: {name} differs between rows")
        return problems

    def alone(self):
        """Compares the rows of a batch with each of them alone.

        Returns:
            A list of problems; None where it does not apply.
        """
        if self.samples.batch_size is not None:
            return None
        rows = self.samples.rows(self.lengths[-1:] * 3, seed=4)
        together = self.run(self.samples.batch(rows))
        single = [self.run(self.samples.batch([row])) for row in rows]
        problems = []
        for name, value in together.items():
            parts = [one[name] for one in single]
            if not (
                _has_rows(value, 3) and all(_has_rows(x, 1) for x in parts)
            ):
                problems.append(
                    f"{self.name}: {name} has not one row per row: its shape "
                    f"is {value.shape} for 3 rows, {parts[0].shape} for one"
                )
                continue
            pairs = [(value[i : i + 1], part) for i, part in enumerate(parts)]
            gaps = [_gap(*pair) for pair in pairs if not self._close(*pair)]
            if gaps:
                problems.append(
                    f"{self.name}: {name} of a row changes by {max(gaps):.2g} "
                    "with the other rows of its batch"
                )
        return problems

    def padding(self):
        """Compares a short row alone with the same row beside a longer one.

        Returns:
            A list of problems; None where it does not apply.
        """
        if not self.samples.has_padding or len(self.lengths) < 2:
            return None
        rows = self.samples.rows(self.lengths, seed=2)
        alone = self.run(self.samples.batch(rows[:1]))
        beside = self.run(self.samples.batch(rows))
        problems = []
        for name, value in alone.items():
            if not _has_rows(beside[name], 2):
                continue
            other = beside[name][:1]
            if other.ndim == value.ndim:
                other = other[tuple(slice(size) for size in value.shape)]
            if not self._close(value, other):
                gap = _gap(value, other)
                problems.append(
                    f"{self.name}: {name} of a row changes by {gap:.2g} when "
                    "a longer row is in the batch"
                )
        return problems

    def empty(self):
        """Runs a row of padding only beside a real one.

        Returns:
            A list of problems; None where it does not apply.
        """
        if not self.samples.has_padding or not self.lengths:
            return None
        rows = self.samples.rows([0, self.lengths[-1]], seed=3)
        try:
            outputs = self.run(self.samples.batch(rows))
        except RunError as error:
            return [f"{self.name}: {first_line(error)}"]
        return [
            f"{self.name}: NaN or infinity in {name}"
            for name, value in outputs.items()
            if not _finite(value)
        ]

    def _close(self, first, second):
        if first.shape != second.shape:
            return False
        if first.dtype.kind not in "fc":
            return bool(np.all(first == second))
        scale = np.max(np.abs(np.nan_to_num(first)), initial=1e-6)
        return _gap(first, second) <= self.tolerance * scale


def _gap(first, second):
    """Largest difference; infinite where NaN or infinity is on one side."""
    if first.shape != second.shape or first.dtype.kind not in "fc":
        return float("inf")
    finite = np.isfinite(first)
    if not np.array_equal(finite, np.isfinite(second)):
        return float("inf")
    return float(np.max(np.abs(first - second)[finite], initial=0.0))


def _has_rows(value, count):
    """Whether an output has one entry per row of the input."""
    return value.ndim > 0 and len(value) == count


def _finite(value):
    return value.dtype.kind not in "fc" or bool(np.isfinite(value).all())


def _same_bits(first, second):
    if first.dtype.kind == "O":
        return bool(np.all(first == second))
    return first.tobytes() == second.tobytes()


def first_line(error):
    """Returns what an error says, in one line of bounded length."""
    line = (str(error).strip().splitlines() or [type(error).__name__])[0]
    return textwrap.shorten(line, 200, placeholder=" ...")


def _is_unrestored(problem):
    words = ("Could not find variable", "uninitialized")
    return any(word in problem for word in words)
