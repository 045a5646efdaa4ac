"""Files beside the versions of a model: how a server is to load them."""

import re

from keras_attention.export.folder import versions

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
_LABEL = re.compile(r"""key:\s*["'](\w+)["']\s*value:\s*(\d+)""")
LABELS = ("stable", "canary")

_BATCHING = """\
# Used when the server runs with --enable_batching.
max_batch_size { value: 32 }
batch_timeout_micros { value: 1000 }
max_enqueued_batches { value: 100 }
num_batch_threads { value: 4 }
# Never true for token ids: the server fills up short rows with their first
# value, not with the id that the model masks.
pad_variable_length_inputs: false
"""


def check_name(name, base):
    """Returns the name of the model on the server.

    Args:
        name: The name asked for, or None for that of the base folder.
        base: Base folder, a `pathlib.Path`.

    Raises:
        TypeError: the name is no string.
        ValueError: the name does not fit into an address.
    """
    if name is None:
        return re.sub(r"[^A-Za-z0-9_.\-]|^[^A-Za-z0-9]", "_", base.name)
    if not isinstance(name, str):
        raise TypeError(
            f"`name` must be a string. Received: name={name!r} of type "
            f"{type(name).__name__}"
        )
    if not _NAME.fullmatch(name):
        raise ValueError(
            "`name` is part of the address of the model: it must start with "
            "a letter or digit and hold only letters, digits, '_', '.' and "
            f"'-'. Received: name={name!r}"
        )
    return name


def check_label(label):
    """Raises a ValueError for labels other than stable, canary and None."""
    if label not in (None, *LABELS):
        raise ValueError(
            f"`label` must be one of {LABELS} or None. "
            f"Received: label={label!r}"
        )


def write_server_files(base, name, version, label, write):
    """Writes `models.config` and `batching.config`.

    The first version is `stable`. A later one is `canary`, beside the version
    that is stable, until it is exported or labelled as `stable`.

    Args:
        base: Base folder, a `pathlib.Path`.
        name: Name of the model on the server.
        version: Number of the version just written.
        label: Label of that version; None for the rule above.
        write: Callable that takes a path and the text to put there.

    Returns:
        Dictionary from labels to version numbers.
    """
    path = base / "models.config"
    labels = _read_labels(path, versions(base))
    if "stable" not in labels and "canary" in labels:
        labels["stable"] = labels.pop("canary")
    if label is None:
        first = labels.get("stable", version) == version
        label = "stable" if first else "canary"
    labels[label] = version
    labels.setdefault("stable", version)
    if labels.get("canary") == labels["stable"]:
        del labels["canary"]
    write(path, _models_config(name, labels))
    write(base / "batching.config", _BATCHING)
    return labels


def _read_labels(path, present):
    text = path.read_text() if path.exists() else ""
    found = {label: int(number) for label, number in _LABEL.findall(text)}
    return {
        label: number
        for label, number in found.items()
        if label in LABELS and number in present
    }


def _models_config(name, labels):
    numbers = "\n".join(
        f"        versions: {number}" for number in sorted(labels.values())
    )
    entries = "\n".join(
        f'    version_labels {{ key: "{label}" value: {labels[label]} }}'
        for label in LABELS
        if label in labels
    )
    return f"""\
model_config_list {{
  config {{
    name: "{name}"
    base_path: "/models/{name}"
    model_platform: "tensorflow"
    model_version_policy {{
      specific {{
{numbers}
      }}
    }}
{entries}
  }}
}}
"""
