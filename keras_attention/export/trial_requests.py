"""Requests run once at export, to warm a server up and to show a client."""

import dataclasses

import tensorflow as tf

from keras_attention.export.samples import Samples, find_bounds

_WARM_UP_LENGTHS = (8, 32, 128)
_SHOWN_LENGTHS = (3, 2)
# Numbers in one request. Larger ones, such as caches, would fill the folder.
_LARGEST_REQUEST = 1 << 14


@dataclasses.dataclass(frozen=True)
class TrialRequest:
    """One request and its answer, as dictionaries of arrays."""

    signature: str
    specs: dict
    inputs: dict
    outputs: dict


def trial_requests(functions):
    """Runs made-up requests on traced signatures.

    A request that the model refuses is left out: a server that cannot run a
    warm-up request does not open the version.

    Args:
        functions: Dictionary from signature names to concrete functions.

    Returns:
        Two lists of `TrialRequest`: for each signature one of two rows, to
        show, and some of one row in several lengths, to warm up.
    """
    shown, warm_up = [], []
    bounds = {}
    specs = {name: _input_specs(fn) for name, fn in functions.items()}
    for name, function in functions.items():
        run = _runner(function, specs[name])
        bounds.update(find_bounds(specs[name], run))
        samples = Samples(specs[name], specs["serving_default"], bounds)
        lengths = _WARM_UP_LENGTHS if samples.has_length else (1,)
        shown += _try(name, samples, run, [_SHOWN_LENGTHS])
        warm_up += _try(name, samples, run, [[length] for length in lengths])
    return shown, warm_up


def _try(name, samples, run, batches):
    for lengths in batches:
        if not samples.has_padding:
            lengths = [lengths[0]] * len(lengths)
        size = samples.batch_size or len(lengths)
        lengths = (list(lengths) * size)[:size]
        inputs = samples.batch(samples.rows(lengths))
        if sum(value.size for value in inputs.values()) > _LARGEST_REQUEST:
            continue
        try:
            outputs = run(inputs)
        except tf.errors.OpError:
            continue
        yield TrialRequest(name, samples.specs, inputs, outputs)


def _input_specs(function):
    positional, keywords = function.structured_input_signature
    specs = [*positional, *keywords.values()]
    return {spec.name: spec for spec in specs}


def _runner(function, specs):
    def run(inputs):
        tensors = [
            tf.constant(inputs[name], spec.dtype)
            for name, spec in specs.items()
        ]
        return {k: v.numpy() for k, v in function(*tensors).items()}

    return run
