"""What an upgrade changed, and what it could not."""

from __future__ import annotations

import dataclasses
import importlib.util


@dataclasses.dataclass(frozen=True)
class Change:
    """A layer that was replaced.

    Attributes:
        path: Where it is: names of models and layers, outermost first.
        before: Its class, such as "keras.MultiHeadAttention".
        after: The class that took its place.
        parameters: Number of its parameters, all carried over.
    """

    path: str
    before: str
    after: str
    parameters: int


@dataclasses.dataclass(frozen=True)
class Note:
    """Something that was left as it was, or that the user should know.

    Attributes:
        path: Where it is.
        what: The class or the thing concerned.
        why: The reason, in a sentence.
    """

    path: str
    what: str
    why: str


@dataclasses.dataclass
class UpgradeReport:
    """What `upgrade` did to a model.

    Attributes:
        changes: List of `Change`.
        notes: List of `Note`.
    """

    changes: list[Change] = dataclasses.field(default_factory=list)
    notes: list[Note] = dataclasses.field(default_factory=list)

    def __str__(self):
        """Returns the tables as plain text."""
        return "\n\n".join(_plain(*table) for table in self._tables())

    def print(self):
        """Prints the tables, by `rich` where it is installed."""
        if importlib.util.find_spec("rich") is None:
            print(self)
            return
        import rich
        from rich.markup import escape
        from rich.table import Table

        for title, columns, rows in self._tables():
            table = Table(*columns, title=title)
            for row in rows:
                table.add_row(*map(escape, row))
            rich.print(table)

    def _tables(self):
        """Yields title, names of columns, and rows of strings."""
        changes = [
            (c.path, c.before, c.after, f"{c.parameters:,}")
            for c in self.changes
        ]
        number = len(changes)
        title = f"Replaced: {number} layer{'' if number == 1 else 's'}"
        yield title, ("layer", "was", "is", "parameters"), changes
        if self.notes:
            notes = [(n.path, n.what, n.why) for n in self.notes]
            yield "Not changed, or to know", ("layer", "what", "why"), notes


def _plain(title, columns, rows):
    widths = [
        max(map(len, cells)) for cells in zip(columns, *rows, strict=True)
    ]
    lines = [
        "  ".join(
            cell.ljust(width) for cell, width in zip(row, widths, strict=True)
        ).rstrip()
        for row in (columns, *rows)
    ]
    return "\n".join([title, *lines])
