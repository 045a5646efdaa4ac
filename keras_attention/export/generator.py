"""From a model that writes to a folder whose server does the writing."""

from __future__ import annotations

import dataclasses
import logging

import numpy as np
import tensorflow as tf

from keras_attention.export.generator_signatures import (
    GeneratorSignatures,
    with_texts,
)
from keras_attention.export.interface import read_interface
from keras_attention.export.preprocessing import text_function
from keras_attention.export.savedmodel import layers_of
from keras_attention.export.signatures import (
    check_batch_axes,
    layer_endpoint,
    serving_function,
    trace,
)
from keras_attention.export.version import Target, Traced, write_version
from keras_attention.layers import arguments
from keras_attention.models.compiled_loop import cached_decoder
from keras_attention.models.generation_settings import GenerationSettings

_DEFAULT_CACHE = 1024
_log = logging.getLogger(__name__)


def export_generator(
    model,
    base_path,
    version=None,
    *,
    max_new_tokens,
    start_token=None,
    seed=0,
    cache_length=None,
    preprocessing=None,
    postprocessing=None,
    name=None,
    label=None,
    warm_up=None,
    overwrite=False,
    **settings,
):
    """Exports an autoregressive model as a TF Serving version folder.

    Everything that `export_for_serving` says of the folder holds. The whole
    loop is in the graph: one request brings back whole sequences, the same
    tokens as `models.generate` gives. A row gets the same in any batch: drawn
    tokens are those of `models.generate(..., seed=[seed] * B)`.

    The signatures, beside `serving_default` with the logits of the model:

    - `generate`: `token_ids` `(B, T)`, padding anywhere, to new `token_ids`
      `(B, M)`; for a sequence-to-sequence model from `source_ids`.
    - `generate_text`: the same from strings `(B,)`, if `preprocessing` is
      given.
    - `generate_with_settings`, without beams: takes for each row also
      `max_new_tokens` (M at most), `temperature` (0 for the likeliest
      token), `top_p` (1 for all) and `seed`, each `(B,)`.
    - `prefill` and `decode_step`, without an encoder, for servers that put
      together running sequences: `token_ids` to the `logits` `(B, V)` of the
      next token, its `position` `(B,)` and the `cache`
      `(B, blocks, 2, S, K, H)`; and `token` `(B,)`, `position` and `cache`
      to `logits` and the new `cache`. No state stays on the server.

    Args:
        model: A model such as `models.generate` takes.
        base_path: Folder that holds the versions of this model.
        version: Positive integer; None for the next free number.
        max_new_tokens: Number of tokens that a request gets at most, M.
        start_token: Id that a sequence-to-sequence model starts with.
        seed: Integer that every row draws from. Equal requests get equal
            tokens, drawn ones too.
        cache_length: Number of positions S of the cache of `prefill` and
            `decode_step`. Defaults to the number of positions of the model,
            or 1024 where it has no such limit.
        preprocessing: Layer that turns strings `(B,)` into ids, such as
            `keras.layers.TextVectorization`.
        postprocessing: Layer that turns new ids `(B, M)` into strings, such
            as `keras.layers.StringLookup(invert=True)`. Adds the output
            `text`.
        name: Name of the model on the server; None for that of `base_path`.
        label: As in `export_for_serving`, like all that follow.
        warm_up: Whether to write warm-up requests.
        overwrite: Whether to replace the version if it exists.
        **settings: Fields of `models.GenerationSettings`.

    Returns:
        The version folder, a `pathlib.Path`.

    Raises:
        TypeError: an argument is of the wrong type or unknown.
        ValueError: the model cannot be served, or the folder cannot be
            written. Nothing is left behind.

    Example:

    >>> import tempfile
    >>> from keras_attention.models import causal_language_model
    >>> model = causal_language_model(
    ...     20, hidden_dim=8, num_layers=1, num_heads=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_generator(
    ...         model, folder, max_new_tokens=3, cache_length=8).name
    '1'
    """
    target = Target.checked(base_path, version, overwrite, name, label, warm_up)
    objects = [model]
    for layer in (preprocessing, postprocessing):
        objects += [] if layer is None else layers_of(layer)
    interface = read_interface(model)
    signatures = GeneratorSignatures(
        cached_decoder(model),
        GenerationSettings.of(settings),
        size=arguments.positive_integer("max_new_tokens", max_new_tokens),
        seed=_integer("seed", seed),
        start_token=start_token,
    )
    serve = serving_function(model, interface)
    functions = {
        "serving_default": serve,
        **_writing(signatures, interface, preprocessing, postprocessing),
        **_stepping(signatures, cache_length),
    }
    _log.info("Tracing the signatures %s", ", ".join(functions))
    traced = {key: trace(fn, key) for key, fn in functions.items()}
    for concrete in traced.values():
        check_batch_axes(concrete)
    endpoint = layer_endpoint(serve, interface)
    return write_version(
        target, Traced(endpoint, traced, objects), model, interface
    )


def _writing(signatures, interface, preprocessing, postprocessing):
    """Returns the functions that run the whole loop, by name."""
    generate = with_texts(signatures.generate(), postprocessing)
    functions = {"generate": generate}
    if preprocessing is not None:
        specs = tuple(generate.input_signature)
        functions["generate_text"] = text_function(
            generate, dataclasses.replace(interface, specs=specs), preprocessing
        )
    if signatures.settings.num_beams == 1:
        functions["generate_with_settings"] = with_texts(
            signatures.generate_with_settings(), postprocessing
        )
    return functions


def _stepping(signatures, cache_length):
    """Returns the functions that take one step, by name."""
    if signatures.decoder.has_encoder:
        return {}
    length = _cache_length(cache_length, signatures.decoder.max_length)
    return {
        "prefill": signatures.prefill(length),
        "decode_step": signatures.decode_step(length),
    }


def _cache_length(cache_length, max_length):
    if cache_length is None:
        return max_length or _DEFAULT_CACHE
    cache_length = arguments.positive_integer("cache_length", cache_length)
    if max_length is not None and cache_length > max_length:
        raise ValueError(
            f"The model has {max_length} positions, and no use for a longer "
            f"cache. Received: cache_length={cache_length}"
        )
    return cache_length


def _integer(name, value):
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise TypeError(
            f"`{name}` must be an integer. Received: {name}={value!r}"
        )
    if not tf.int32.min <= value <= tf.int32.max:
        raise ValueError(f"`{name}` must fit 32 bits. Received: {name}={value}")
    return int(value)
