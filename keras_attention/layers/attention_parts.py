"""What goes into the attention parts of a decoder, and what comes out."""

from __future__ import annotations


def check_encoder(layer, encoder_sequence, cache, index) -> None:
    """Refuses arguments that do not suit cross-attention.

    Args:
        layer: The layer of cross-attention, or None.
        encoder_sequence: Tensor `(B, S, De)`, or None.
        cache: `cross_attention_cache`.
        index: `cross_attention_cache_update_index`.
    """
    if layer is None and (encoder_sequence is not None or cache is not None):
        raise ValueError(
            "The block was built without `encoder_sequence` and has no "
            "cross-attention. Pass one at the first call, or make the "
            "block with `cross_attention=MultiHeadAttention(...)`."
        )
    if layer is None:
        return
    if encoder_sequence is None and (cache is None or index is not None):
        raise ValueError(
            "The block has cross-attention and needs `encoder_sequence`, "
            "or `cross_attention_cache` from `compute_cross_cache` (with "
            "no index to write to). Received: encoder_sequence=None, "
            f"cross_attention_cache_update_index={index}"
        )
    if index is None:
        return
    if cache is None or (isinstance(index, int) and index != 0):
        raise ValueError(
            "`cross_attention_cache_update_index` must be 0, and go with "
            "a `cross_attention_cache` that it fills with the whole of "
            "`encoder_sequence`. Received: "
            f"cross_attention_cache_update_index={index}"
        )


def parts(outputs, options):
    """Returns what attention gave: context, scores or None, cache or None."""
    if not isinstance(outputs, (tuple, list)):
        return outputs, None, None
    rest = list(outputs)
    attended = rest.pop(0)
    scores = rest.pop(0) if options["return_attention_scores"] else None
    return attended, scores, rest.pop(0) if rest else None


def results(x, extras):
    """Returns the output, or a tuple of it, all scores and all caches.

    Args:
        x: The output.
        extras: Scores and cache of each part in turn, or None in place of
            either.
    """
    ordered = [*extras[::2], *extras[1::2]]
    present = [extra for extra in ordered if extra is not None]
    return (x, *present) if present else x
