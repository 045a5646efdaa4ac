"""Time and memory of attention, beside Keras, PyTorch and the least possible.

Times are medians of runs in turn, in one process, each after one that does not
count unless it takes long: threads of the one before may still be spinning, and
its numbers fill the caches. Memory is the peak above the start of a process of
its own, inputs and results included, after a short run of the same. PyTorch
takes part where it is installed. Linux only.

Usage: python benchmarks/attention.py [--longest 32768] [--picture FILE]
       [--times-only | --memory-only]
"""

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import process_memory  # noqa: E402
from contestants import CONTESTANTS, Case  # noqa: E402

CASES = [
    Case(128, batch=8),
    Case(512, batch=8),
    Case(2048),
    Case(2048, causal=True),
    Case(2048, causal=True, dtype="bfloat16"),
    Case(8192, causal=True),
    Case(32768, causal=True),
    Case(32768, causal=True, window=256),
    Case(512, batch=8, training=True),
    Case(1024, causal=True, training=True),
    Case(2048, causal=True, training=True),
    Case(4096, causal=True, training=True),
    Case(8192, causal=True, training=True),
    Case(16384, causal=True, training=True),
    Case(32768, causal=True, training=True),
]
MEMORY_CASES = [
    *(Case(2**power, causal=True, training=True) for power in range(10, 16)),
    Case(65536, causal=True),
]
SECONDS_A_CASE = 8
# A call that takes less is made twice in a turn, and the second counts.
SHORT_SECONDS = 0.2
# Long enough for the kernel of long sequences, which it loads.
SHORT = 512


def time_in_turn(case):
    """Returns the median seconds of each contestant, None where it is out."""
    calls = {name: make(case) for name, make in CONTESTANTS.items()}
    calls = {name: call for name, call in calls.items() if call}
    seconds = {name: [] for name in calls}
    for call in calls.values():
        call()
    start = time.perf_counter()
    while True:
        for name, call in calls.items():
            taken = _seconds(call)
            if taken < SHORT_SECONDS:
                taken = _seconds(call)
            seconds[name].append(taken)
        runs = len(seconds["ours"])
        if runs >= 25 or time.perf_counter() - start > SECONDS_A_CASE:
            break
    return {
        name: statistics.median(seconds[name]) if name in seconds else None
        for name in CONTESTANTS
    }


def _seconds(call):
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure_memory(name, case):
    """Returns the peak of one run in this process, in bytes."""
    CONTESTANTS[name](dataclasses.replace(case, length=SHORT))()
    before = process_memory.resident()
    process_memory.reset_peak()
    CONTESTANTS[name](case)()
    return process_memory.peak() - before


def memory_in_process(name, case):
    """Returns the peak of one run in a process of its own, or None."""
    if CONTESTANTS[name](dataclasses.replace(case, length=64)) is None:
        return None
    if name == "Keras" and case.scores_bytes > 2.5e9:
        return None
    case = json.dumps(dataclasses.asdict(case))
    command = [sys.executable, __file__, "--one", name, case]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    return int(run.stdout.splitlines()[-1])


def row(case, *cells):
    shape = f"{case.batch} x {case.length:,}"
    return f"| {case.name} | {shape} | {' | '.join(cells)} |"


def heading(*cells):
    print(f"| | B x T | {' | '.join(cells)} |")
    print(f"|---|---|{'---:|' * len(cells)}", flush=True)


def print_times(longest):
    """Prints the table of times and returns them by case."""
    times = {}
    heading(
        *(f"{name}, ms" for name in CONTESTANTS),
        "Keras / ours",
        "ours / PyTorch",
    )
    for case in CASES:
        if case.length > longest:
            continue
        seconds = times[case] = time_in_turn(case)
        cells = [f"{1e3 * s:,.1f}" if s else "" for s in seconds.values()]
        ours, keras, torch = (
            seconds[name] for name in ("ours", "Keras", "PyTorch")
        )
        cells += [
            f"{keras / ours:.2f}" if keras else "",
            f"{ours / torch:.2f}" if torch else "",
        ]
        print(row(case, *cells), flush=True)
    return times


def print_memory(longest):
    """Prints the table of peaks and returns them by case."""
    names = [name for name in CONTESTANTS if name != "two products"]
    peaks = {}
    heading(*(f"{name}, MB" for name in names))
    for case in MEMORY_CASES:
        if case.length > max(longest, 65536 * (longest == 32768)):
            continue
        peaks[case] = {n: memory_in_process(n, case) for n in names}
        cells = [f"{p / 1e6:,.0f}" if p else "" for p in peaks[case].values()]
        print(row(case, *cells), flush=True)
    return peaks


def draw(times, peaks, path):
    """Draws time and memory of training against length."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6))
    panels = ((times, 1.0, "seconds"), (peaks, 1e6, "MB above start"))
    for axis, (results, unit, label) in zip(axes, panels, strict=True):
        lines = {}
        for case, found in results.items():
            if not (case.training and case.causal):
                continue
            for name, value in found.items():
                if value:
                    lines.setdefault(name, []).append(
                        (case.length, value / unit)
                    )
        for name, points in lines.items():
            axis.plot(
                *zip(*sorted(points), strict=True), marker="o", label=name
            )
        axis.set(xscale="log", yscale="log", xlabel="tokens", ylabel=label)
        ticks = [2**power for power in range(10, 16)]
        axis.set_xticks(ticks, [f"{tick:,}" for tick in ticks], fontsize=8)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
        axis.legend()
    figure.suptitle("A training step, causal, 8 heads of 64, 2 cores")
    figure.tight_layout()
    figure.savefig(path, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--longest", type=int, default=32768)
    parser.add_argument("--picture", help="where to draw the results")
    parser.add_argument("--times-only", action="store_true")
    parser.add_argument("--memory-only", action="store_true")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        name, case = arguments.one
        print(measure_memory(name, Case(**json.loads(case))))
        return
    times, peaks = {}, {}
    if not arguments.memory_only:
        times = print_times(arguments.longest)
        print()
    if not arguments.times_only:
        peaks = print_memory(arguments.longest)
    if arguments.picture:
        draw(times, peaks, arguments.picture)


if __name__ == "__main__":
    main()
