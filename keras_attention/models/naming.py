"""Names that stay the same when a model is built a second time.

Keras makes anonymous names unique with a counter that runs on through the
process (`dense`, `dense_1`, ...), so the same code gives other names on the
next build. What a client or a figure relies on has to be free of it.
"""

import re


def stable_names(operations):
    """Drops the counters from names Keras made up; keeps any other name.

    Keras's counters begin with no number at all, so that a family of names
    with a number 0, `block_0`, `block_1`, is the user's and is kept.

    Args:
        operations: Layers or other operations of one model.

    Returns:
        A list of their names, in the same order; names can repeat.

    Example:

    >>> import keras
    >>> layers = [keras.layers.Dense(2, name=n) for n in ("dense_7", "top_7")]
    >>> stable_names(layers)
    ['dense', 'top_7']
    """
    operations = list(operations)
    kept = {x.name[:-2] for x in operations if x.name.endswith("_0")}
    return [_without_counter(x, kept) for x in operations]


def _without_counter(operation, kept):
    head = re.sub(r"_\d+$", "", operation.name)
    letters = re.sub(r"\W|_", "", type(operation).__name__).lower()
    made_up = head.replace("_", "").lower() == letters
    return head if made_up and head not in kept else operation.name


def unique_names(names):
    """Numbers repeated names in order: `a, a, b` gives `a, a_1, b`.

    Args:
        names: Iterable of strings.

    Returns:
        A list of distinct strings, in the order given. A name that occurs
        once is never changed.

    Example:

    >>> unique_names(["a", "a", "a_1"])
    ['a', 'a_2', 'a_1']
    """
    names = list(names)
    taken = set(names)
    result, seen = [], set()
    for name in names:
        candidate, number = name, 0
        while candidate in seen or (number and candidate in taken):
            number += 1
            candidate = f"{name}_{number}"
        seen.add(candidate)
        result.append(candidate)
    return result
