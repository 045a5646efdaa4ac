"""What the processor at hand does best, as far as a kernel must know."""

from __future__ import annotations

import functools
import os
import pathlib

# By these, TensorFlow decides whether to multiply by oneDNN.
_MATRIX_FEATURES = {
    "avx512_vnni",
    "avx512_bf16",
    "avx_vnni",
    "amx_tile",
    "amx_int8",
    "amx_bf16",
}


@functools.lru_cache(maxsize=1)
def multiplies_with_onednn() -> bool:
    """Returns whether TensorFlow leaves matrix products to oneDNN.

    It multiplies whole matrices about twice as fast. TensorFlow uses it on
    recent processors, or as `TF_ENABLE_ONEDNN_OPTS` says.
    """
    setting = os.environ.get("TF_ENABLE_ONEDNN_OPTS")
    if setting is not None:
        return setting.lower() in ("1", "true")
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text()
    except OSError:
        return False
    lines = [line for line in text.splitlines() if line.startswith("flags")]
    return bool(lines) and not _MATRIX_FEATURES.isdisjoint(lines[0].split())
