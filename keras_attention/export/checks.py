"""Proves that a version folder serves, before it ships."""

import tensorflow as tf

from keras_attention.export.metadata import (
    find_graph,
    read_graph,
    read_metadata,
    read_signatures,
)
from keras_attention.export.report import Report
from keras_attention.export.runner import RunError, Runner
from keras_attention.export.safety import unsafe_ops
from keras_attention.export.samples import Samples, find_bounds
from keras_attention.export.signatures import foreign_ops, reachable_nodes
from keras_attention.export.stored import stored_twice
from keras_attention.export.trials import Trials, first_line

_EXPORT = (
    "Export it with `keras_attention.export.export_for_serving(model, "
    "base_path)`"
)
_ADVICE = {
    "readable": f"{_EXPORT} anew: this one is damaged, or none for serving.",
    "no files touched": (
        "Run it only if you trust whoever made it: a SavedModel is a program. "
        "`check(path, trust=True)` runs it, `--trust` on the command line."
    ),
    "loads": f"{_EXPORT} on the TensorFlow version that serves.",
    "plain ops": (
        f"{_EXPORT}, with that step written in `keras.ops` or moved to the "
        "client: a stock server has neither Python nor custom ops."
    ),
    "weights stored once": (
        f"{_EXPORT}: the folder is larger than the model, and so is the time "
        "to load it."
    ),
    "weights restored": (
        f"{_EXPORT}: `tf.saved_model.save` of a Keras model leaves variables "
        "that nothing restores outside Python."
    ),
    "runs": f"{_EXPORT}, and see the message for the input that fails.",
    "any size": (
        "Build the model on `keras.Input((None,), ...)`, or pass "
        "`input_signature` with None for the batch and the length, and use "
        "no size of the data it was traced with. A size fixed on purpose: "
        "skip 'any size'."
    ),
    "finite": "Find the layer with `keras.ops.isfinite` on its output.",
    "repeatable": "The same request must give the same answer.",
    "rows alone": (
        "A server joins the requests of different clients to one batch. Take "
        "no mean, maximum or order over the batch axis, call "
        "`BatchNormalization` with `training=False`, and give one row of "
        "every output per row of the inputs."
    ),
    "dropout off": f"{_EXPORT}: it traces the model with `training=False`.",
    "padding hidden": (
        "Hand the mask on: `Embedding(mask_zero=True)`, layers that keep "
        "masks, and a pooling that reads them. Padding that is meant to "
        "count: skip 'padding hidden'."
    ),
    "empty rows": (
        "An empty text gets no number. Pool with a layer that copes with "
        "rows of padding only, or refuse empty texts in the client."
    ),
}
CHECKS = tuple(_ADVICE)


def check(
    path,
    batch_sizes=(1, 3, 17),
    lengths=(1, 5, 9),
    skip=(),
    cpp=None,
    trust=False,
    timeout=600.0,
):
    """Checks a version folder as a model server would use it.

    The folder is loaded outside this process by the C++ loader of TensorFlow
    Serving or, where no compiler is found, by a plain session in a Python
    without Keras. Every signature runs at every batch size and length. Works
    on any SavedModel, also on a damaged one.

    A SavedModel is a program. Before it is loaded, its graph is read for
    operations that read or write files, or open connections; where there are
    any, it is not run.

    Args:
        path: A version folder, such as `models/sentiment/1`.
        batch_sizes: Batch sizes to run.
        lengths: Lengths to run, for inputs with an open length.
        skip: Names of checks to leave out, from `CHECKS`.
        cpp: Whether to run by the C++ loader; None for where possible.
        trust: Whether to run a model that touches files.
        timeout: Seconds that loading, and each run, may take.

    Returns:
        A `Report`; `report.ok` tells whether the folder can ship.

    Raises:
        ValueError: `skip` has an unknown name, or `path` has no
            `saved_model.pb`.

    Example:

    ```python
    report = check("models/sentiment/1", lengths=(1, 64))
    if not report.ok:
        print(report)
    ```
    """
    unknown = sorted(set(skip) - set(CHECKS))
    if unknown:
        raise ValueError(
            f"`skip` must have names from {CHECKS}. Received: {unknown}"
        )
    find_graph(path)
    report = Report(str(path))
    try:
        checker = _Checker(report, path, skip)
        unsafe = checker.look(trust)
    except Exception as error:
        report.add("readable", "fail", first_line(error), _ADVICE["readable"])
    else:
        if not unsafe or trust:
            checker.run(batch_sizes, lengths, cpp, timeout)
    done = {result.name for result in report.results}
    for name in CHECKS:
        if name not in done:
            why = "left out" if name in skip else "not run"
            report.add(name, "skip", why)
    report.results.sort(key=lambda result: CHECKS.index(result.name))
    return report


class _Checker:
    """Runs the signatures and writes the verdicts into a report.

    Args:
        report: The `Report` to fill.
        path: A version folder.
        skip: Names of checks to leave out.
    """

    def __init__(self, report, path, skip):
        self.report = report
        self.path = path
        self.skip = skip
        self.graph = read_graph(path)
        self.signatures = read_signatures(self.graph)
        self.metadata = read_metadata(path)
        self.nodes = reachable_nodes(self.graph.graph_def, self._roots())

    def look(self, trust):
        """Judges what can be seen without running; returns what is unsafe."""
        unsafe = unsafe_ops(self.graph)
        foreign = foreign_ops(self.graph.graph_def, self._roots())
        copies = stored_twice(self.path, self.graph)
        self.judge("readable", [])
        bad = "warn" if trust else "fail"
        self.judge("no files touched", unsafe, bad=bad)
        self.judge("plain ops", foreign)
        self.judge("weights stored once", copies)
        return unsafe

    def run(self, batch_sizes, lengths, cpp, timeout):
        """Loads the folder and judges how it runs."""
        try:
            with Runner(self.path, cpp, timeout) as runner:
                self.report.runtime = runner.runtime
                self.judge("loads", [], runner.runtime)
                self.run_signatures(runner, batch_sizes, lengths)
        except RunError as error:
            self.judge("loads", [str(error)[:500]])

    def _roots(self):
        return self.graph.graph_def.node

    def judge(self, name, problems, detail="", bad="fail"):
        """Adds a verdict: None for not applicable, empty for passed."""
        if name in self.skip or problems is None:
            why = "left out" if name in self.skip else "nothing to check"
            self.report.add(name, "skip", why)
        elif problems:
            more = len(problems) - 2
            detail = "; ".join(problems[:2])
            detail += f"; and {more} more" if more > 0 else ""
            self.report.add(name, bad, detail, _ADVICE[name])
        else:
            self.report.add(name, "pass", detail or "no fault found")

    def run_signatures(self, runner, batch_sizes, lengths):
        """Tries every signature and adds the verdicts."""
        # A check that no signature gets to is not a passed one.
        found = dict.fromkeys(CHECKS)
        bounds = {}
        for name in sorted(self.signatures, key="examples".__eq__):
            for check_name, problems in self._tried(
                runner, name, bounds, batch_sizes, lengths
            ):
                if problems is not None:
                    found[check_name] = (found[check_name] or []) + problems
        if not self.signatures:
            found["runs"] = ["there is no signature to run"]
        if found["any size"] is not None:
            found["any size"] += self._fixed_sizes()
        details = {
            "runs": ", ".join(self.signatures),
            "any size": f"batch {list(batch_sizes)}, length {list(lengths)}",
        }
        for name in CHECKS[CHECKS.index("weights restored") :]:
            bad = "warn" if name == "empty rows" else "fail"
            self.judge(name, found[name], details.get(name, ""), bad)

    def _tried(self, runner, name, bounds, batch_sizes, lengths):
        """Yields the problems of one signature, by the name of the check."""
        try:
            trials = self._trials(runner, name, bounds)
            yield from trials.all(batch_sizes, lengths)
        except Exception as error:
            yield "runs", [f"{name}: {first_line(error)}"]

    def _trials(self, runner, name, bounds):
        inputs, _ = self.signatures[name]
        default = self.signatures.get("serving_default", ({}, {}))[0]

        def run(values):
            return runner.run(name, values)

        bounds.update(find_bounds(inputs, run))
        samples = Samples(inputs, default, bounds)
        return Trials(name, samples, run, self._half(), self._random())

    def _half(self):
        half = (tf.float16.as_datatype_enum, tf.bfloat16.as_datatype_enum)
        return any(
            value.type in half
            for node in self.nodes
            for value in node.attr.values()
        )

    def _random(self):
        words = ("Random", "Multinomial", "TruncatedNormal")
        return any(word in node.op for node in self.nodes for word in words)

    def _fixed_sizes(self):
        """Inputs with a batch or a length that the signature fixes."""
        problems = []
        for name, (inputs, _) in self.signatures.items():
            for key, spec in inputs.items():
                shape = spec.shape.as_list() if spec.shape.rank else []
                if shape[:1] not in ([], [None]):
                    problems.append(
                        f"{name}: input {key!r} has batch size {shape[0]}"
                    )
                declared = self.metadata.get("declared", False)
                if declared or not spec.dtype.is_integer or len(shape) != 2:
                    continue
                if shape[1] not in (None, 1):
                    problems.append(
                        f"{name}: input {key!r} has length {shape[1]} only"
                    )
        return problems
