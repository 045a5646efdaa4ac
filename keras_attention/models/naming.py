"""Names that stay the same when a model is built a second time.

Keras makes anonymous names unique with a counter that runs on through the
process (`dense`, `dense_1`, ...), so the same code gives other names on the
next build. What a client or a figure relies on has to be free of it.
"""

import re


def stable_name(name, class_name):
    """Drops the counter from a name Keras made up; keeps any other name.

    Args:
        name: The name of a layer or operation.
        class_name: The name of its class.

    Returns:
        The name, without counter where it is made of the class name.

    Example:

    >>> stable_name("multi_head_attention_12", "MultiHeadAttention")
    'multi_head_attention'
    >>> stable_name("block_12", "MultiHeadAttention")
    'block_12'
    """
    head = re.sub(r"_\d+$", "", name)
    letters = re.sub(r"\W|_", "", class_name).lower()
    return head if head.replace("_", "").lower() == letters else name


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
