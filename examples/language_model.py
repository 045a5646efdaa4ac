"""Writes in the style of the Python manual, character by character.

Trains a small causal language model on the pages that Python's own `help()`
shows (`pydoc_data.topics`: 460,000 characters of English, nothing to
download), and measures it on pages held out. Paragraphs that stand on several
pages are kept once, so that none is held out and learnt as well.

Prints the bits it needs for a character beside those of simpler models, then
lets it write, each character as it comes.

Usage: python examples/language_model.py [--minutes 10] [--prompt "The "]
"""

import argparse
import lzma
import pathlib
import pydoc_data.topics

import keras
import numpy as np
import tensorflow as tf
from timed_training import train

from keras_attention import models

BATCH = 32


def main(argv=None):
    """Runs the example and returns the bits per character by model."""
    args = read_arguments(argv)
    keras.utils.set_random_seed(args.seed)
    args.output.mkdir(parents=True, exist_ok=True)

    known, held_out = read_manual(args)
    characters = keras.layers.TextVectorization(
        standardize=None, split="character", vocabulary=sorted(set(known))
    )
    print(
        f"{len(known):,} characters to learn from, {len(held_out):,} held "
        f"out; {characters.vocabulary_size() - 2} different ones\n"
    )
    model = models.causal_language_model(
        characters.vocabulary_size(),
        hidden_dim=args.hidden_dim,
        num_layers=args.layers,
        num_heads=4,
        activation="relu",
        dropout=args.dropout,
        # Never further apart than in training, however long the text.
        sliding_window=args.length // 2,
        name="language_model",
    )
    known_ids, held_out_ids = (
        np.asarray(characters([text])[0], "int32") for text in (known, held_out)
    )
    tuning = windows(held_out_ids, args.length, args.length)[:64]
    train(
        model,
        batches(known_ids, args.length),
        (tuning[:, :-1], tuning[:, 1:]),
        args.minutes,
        args.peak,
        steps_per_report=max(5, len(known_ids) // (BATCH * args.length)),
    )
    model.save(args.output / "language_model.keras")

    bits = {
        "characters, counted": counted_bits(known_ids, held_out_ids, 0),
        "pairs of characters, counted": counted_bits(
            known_ids, held_out_ids, 1
        ),
        "LZMA, that has read the known pages": packed_bits(known, held_out),
        f"this model, {model.count_params():,} weights": model_bits(
            model, held_out_ids, args.length
        ),
    }
    print("\nBits per held-out character:")
    for name, value in bits.items():
        print(f"  {name:40}{value:5.2f}")
    write(model, characters, args)
    return bits


def read_arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--minutes", type=float, default=10.0, help="time to train")
    add("--output", type=pathlib.Path, default="language_model")
    add("--prompt", default="The ", help="what it goes on from")
    add("--characters", type=int, default=600, help="how many to write")
    add("--temperature", type=float, default=0.8, help="0 for the likeliest")
    add("--top-p", type=float, default=0.95)
    add("--hidden-dim", type=int, default=128)
    add("--layers", type=int, default=3)
    add("--dropout", type=float, default=0.1)
    add("--length", type=int, default=128, help="characters of one sequence")
    add("--peak", type=float, default=3e-3, help="highest learning rate")
    add("--pages", type=int, help="use only so many, to try things out")
    add("--seed", type=int, default=1)
    return parser.parse_args(argv)


def read_manual(args):
    """Returns two texts of whole pages; a tenth of the pages is held out."""
    seen, pages = set(), []
    for _, page in sorted(pydoc_data.topics.topics.items()):
        new = [x for x in page.split("\n\n") if x.strip() not in seen]
        seen.update(x.strip() for x in new)
        pages.append("\n\n".join([*new, ""]))
    np.random.default_rng(args.seed).shuffle(pages)
    pages = pages[: args.pages]
    tenth = -(-len(pages) // 10)
    return "".join(pages[tenth:]), "".join(pages[:tenth])


def batches(ids, length):
    """Returns batches of pieces that begin anywhere, and what follows each."""

    def cut(_):
        starts = tf.random.uniform((BATCH,), 0, len(ids) - length, tf.int32)
        pieces = tf.gather(ids, starts[:, None] + tf.range(length + 1))
        return pieces[:, :-1], pieces[:, 1:]

    return tf.data.Dataset.counter().map(cut).prefetch(16)


def windows(ids, length, step):
    """Returns all pieces of `length + 1` that begin at multiples of `step`."""
    pieces = np.lib.stride_tricks.sliding_window_view(ids, length + 1)
    return pieces[::step]


def model_bits(model, ids, length):
    """Returns the bits per character, each with half a piece before it."""
    half = length // 2
    pieces = windows(ids, length, half)
    logits = model.predict(pieces[:, :-1], verbose=0)[:, half:]
    nats = keras.losses.sparse_categorical_crossentropy(
        pieces[:, 1 + half :], logits, from_logits=True
    )
    return float(np.mean(nats) / np.log(2))


def counted_bits(known, held_out, context):
    """Returns the bits by counts of characters after `context` others."""
    size = 1 + max(known.max(), held_out.max())
    counts = np.full((size,) * (context + 1), 0.1)
    np.add.at(counts, tuple(windows(known, context, 1).T), 1)
    shares = counts / counts.sum(-1, keepdims=True)
    return float(
        -np.log2(shares[tuple(windows(held_out, context, 1).T)]).mean()
    )


def packed_bits(known, held_out):
    """Returns the bits by which the known pages grow with the others."""

    def size(text):
        return len(lzma.compress(text.encode(), preset=9))

    return 8 * (size(known + held_out) - size(known)) / len(held_out)


def write(model, characters, args):
    # Characters that are not in the known text are one, of no name.
    names = [x.replace("[UNK]", "?") for x in characters.get_vocabulary()]
    draws = args.temperature > 0
    print(f"\n{'-' * 72}\n{args.prompt}", end="", flush=True)
    for ids in models.stream(
        model,
        np.asarray(characters([args.prompt])),
        args.characters,
        temperature=args.temperature,
        top_p=args.top_p if draws else None,
        seed=args.seed,
    ):
        print(names[ids[0]], end="", flush=True)
    print(f"\n{'-' * 72}")


if __name__ == "__main__":
    main()
