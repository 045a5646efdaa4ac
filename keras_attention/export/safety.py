"""What a SavedModel would read or write, told from its graph alone.

A SavedModel is a program: to load and to run one is to do what it says. This
is looked up in the definitions of TensorFlow's operations, by the names of
what they are given: a file, a folder, an address.
"""

import dataclasses
import pathlib
from typing import Any

from tensorflow.python.framework import op_def_registry

_PLACES = {
    "address",
    "checkpoint_prefixes",
    "chunk_file",
    "ckpt_path",
    "db_uri",
    "debug_urls",
    "destination_prefix",
    "directory",
    "file_pattern",
    "filename",
    "filenames",
    "logdir",
    "memory_region_name",
    "new_vocab_file",
    "old_vocab_file",
    "path",
    "patterns",
    "prefix",
    "shard_dir",
    "snapshot_path",
    "vocab_file",
    "writer",
}
# Whose inputs are named otherwise.
_OTHERS = {
    "FixedLengthRecordReader",
    "FixedLengthRecordReaderV2",
    "MatchingFiles",
    "RemoteCall",
    "TFRecordReader",
    "TFRecordReaderV2",
    "TextLineReader",
    "TextLineReaderV2",
    "WholeFileReader",
    "WholeFileReaderV2",
}
_TABLES = {"InitializeTableFromTextFile", "InitializeTableFromTextFileV2"}
# Names that are made, not opened.
_HARMLESS = {"ShardedFilename", "ShardedFilespec"}
_LARGEST_WALK = 100_000


def unsafe_ops(graph):
    """Lists what a graph touches beside its own variables and assets.

    Args:
        graph: A `MetaGraphDef`.

    Returns:
        A list of phrases, empty where it touches nothing else.
    """
    walk = _Walk(graph)
    save = _function_calls(graph, graph.saver_def.save_tensor_name)
    restore = _function_calls(graph, graph.saver_def.restore_op_name)
    for node in graph.graph_def.node:
        if node.name in save:
            continue
        walk.visit(_Place(node), restoring=node.name in restore)
    return [*outside_assets(graph), *walk.found.values()]


def outside_assets(graph):
    """Lists the asset files that are not inside the version folder."""
    found = []
    for asset in graph.asset_file_def:
        path = pathlib.PurePosixPath(asset.filename)
        if path.is_absolute() or ".." in path.parts or not asset.filename:
            found.append(f"the asset {asset.filename!r} leaves the folder")
    return found


@dataclasses.dataclass(frozen=True)
class _Place:
    """A node, and the calls that lead to it.

    Attributes:
        node: The `NodeDef`.
        function: The `FunctionDef` that holds it, None for the graph itself.
        call: The `_Place` of the node that calls that function.
    """

    node: Any
    function: Any = None
    call: Any = None


class _Walk:
    """Goes through a graph, and through the functions that it calls."""

    def __init__(self, graph):
        self.found = {}
        self._functions = {
            f.signature.name: f for f in graph.graph_def.library.function
        }
        self._nodes = {node.name: node for node in graph.graph_def.node}
        self._assets = {
            asset.tensor_info.name.partition(":")[0]
            for asset in graph.asset_file_def
        }
        self._visited = 0

    def visit(self, place, restoring=False):
        """Looks at a node and at what it calls, with a stack of its own."""
        waiting = [place]
        while waiting:
            place = waiting.pop()
            self._visited += 1
            if self._visited > _LARGEST_WALK:
                self.found["size"] = "its calls are too many to look through"
                return
            if self._is_unsafe(place, restoring):
                node = place.node
                self.found.setdefault(node.op, f"{node.op} ({node.name})")
            for name in _called(place.node):
                function = self._functions.get(name)
                if function is None:
                    continue
                if _depth(place) > 100:
                    self.found["depth"] = "its functions call each other"
                    return
                waiting += [
                    _Place(node, function, place) for node in function.node_def
                ]

    def _is_unsafe(self, place, restoring):
        node = place.node
        if node.op in _TABLES:
            return not self._reads_asset(place)
        if restoring and node.op == "RestoreV2":
            # From where the loader says, not from a place of its own.
            return place.function is None or not _is_argument(place, 0)
        return touches_places(node)

    def _reads_asset(self, place):
        """Whether a table is filled from a file of the folder."""
        name = place.node.input[1]
        while place.function is not None:
            number = _argument(place, name)
            if number is None:
                return False
            place = place.call
            if number >= len(place.node.input):
                return False
            name = place.node.input[number]
        return self._is_asset(name.partition(":")[0])

    def _is_asset(self, name):
        """Whether a node of the graph itself holds the path of an asset."""
        if name in self._assets:
            return True
        node = self._nodes.get(name)
        if node is None or node.op != "ReadVariableOp":
            return False
        # Keras keeps the path in a variable, which nothing else may set.
        variable = _name(node.input[0])
        users = [
            n
            for n in self._nodes.values()
            if variable in map(_name, n.input) and not _waits_only(n, variable)
        ]
        writers = [n for n in users if n.op == "AssignVariableOp"]
        readers = {"AssignVariableOp", "ReadVariableOp", "VarIsInitializedOp"}
        return (
            bool(writers)
            and all(n.op in readers for n in users)
            and all(n.input[1] in self._assets for n in writers)
        )


def touches_places(node) -> bool:
    """Whether a node opens a file, a folder or a connection."""
    if node.op == "PrintV2":
        return node.attr["output_stream"].s.startswith(b"file:")
    if node.op in _HARMLESS:
        return False
    if node.op in _OTHERS:
        return True
    definition = op_def_registry.get(node.op)
    if definition is None:
        return False
    if any(argument.name in _PLACES for argument in definition.input_arg):
        return True
    return any(
        attribute.name in _PLACES and _is_set(node, attribute.name)
        for attribute in definition.attr
    )


def _is_set(node, name):
    value = node.attr[name]
    return bool(value.s or value.list.s)


def _function_calls(graph, tensor):
    """Names of the node of a tensor, and of those that it waits for."""
    nodes = {node.name: node for node in graph.graph_def.node}
    name = tensor.partition(":")[0]
    found, waiting = set(), [name] if name else []
    while waiting:
        name = waiting.pop()
        if name in found or name not in nodes:
            continue
        found.add(name)
        if nodes[name].op in ("Identity", "NoOp"):
            waiting += map(_name, nodes[name].input)
    return found


def _name(tensor):
    """Returns the name of the node that gives a tensor, or is waited for."""
    return tensor.removeprefix("^").partition(":")[0]


def _waits_only(node, name):
    return all(x.startswith("^") for x in node.input if _name(x) == name)


def _called(node):
    """Names of the functions that a node calls."""
    names = {node.op}
    for value in node.attr.values():
        names.update(f.name for f in (value.func, *value.list.func))
    return names


def _depth(place):
    depth = 0
    while place.call is not None:
        place, depth = place.call, depth + 1
    return depth


def _is_argument(place, number):
    return _argument(place, place.node.input[number]) is not None


def _argument(place, name):
    """Returns which argument of its function a tensor is, or None."""
    name = name.partition(":")[0]
    nodes = {node.name: node for node in place.function.node_def}
    while name in nodes and nodes[name].op == "Identity":
        name = nodes[name].input[0].partition(":")[0]
    names = [argument.name for argument in place.function.signature.input_arg]
    return names.index(name) if name in names else None
