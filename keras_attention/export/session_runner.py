"""Runs a SavedModel in a plain session, for machines without a compiler.

The same job and the same protocol as `runner.cc`, by the loader behind
`saved_model_cli run`: variables come from the checkpoint alone. Started as a
process of its own, in which neither Keras nor this package can be imported.
"""

import os
import resource
import select
import struct
import sys
import threading

_COUNT = struct.Struct("=I")


def write_pairs(stream, head, pairs):
    """Writes a request or an answer.

    Args:
        stream: Binary stream.
        head: Name of a signature, or an error message.
        pairs: Dictionary from names to serialized tensors.
    """
    _write_string(stream, head.encode())
    stream.write(_COUNT.pack(len(pairs)))
    for name, data in pairs.items():
        _write_string(stream, name.encode())
        _write_string(stream, data)
    stream.flush()


def read_pairs(stream):
    """Reads a request or an answer; raises EOFError at the end."""
    head = _read_string(stream).decode()
    pairs = {}
    for _ in range(_read_count(stream)):
        name = _read_string(stream).decode()
        pairs[name] = _read_string(stream)
    return head, pairs


def _write_string(stream, data):
    stream.write(_COUNT.pack(len(data)))
    stream.write(data)


def _read_string(stream):
    return _read_exactly(stream, _read_count(stream))


def _read_count(stream):
    return _COUNT.unpack(_read_exactly(stream, _COUNT.size))[0]


def _read_exactly(stream, size):
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def _run(session, signatures, name, inputs):
    import tensorflow as tf
    from tensorflow.core.framework import tensor_pb2

    if name not in signatures:
        raise ValueError(f"There is no signature {name}")
    signature = signatures[name]
    feeds = {}
    for key, data in inputs.items():
        if key not in signature.inputs:
            raise ValueError(f"There is no input {key}")
        proto = tensor_pb2.TensorProto.FromString(data)
        feeds[signature.inputs[key].name] = tf.make_ndarray(proto)
    fetches = {key: info.name for key, info in signature.outputs.items()}
    return {
        key: tf.make_tensor_proto(value).SerializeToString()
        for key, value in session.run(fetches, feeds).items()
    }


def _end_with_parent():
    """Ends this process when the other end of its input is gone."""
    poll = select.poll()
    poll.register(sys.stdin.fileno(), 0)
    poll.poll()
    os._exit(0)


def main(path, memory_limit):
    """Serves requests on standard input until it ends.

    Args:
        path: Folder of a SavedModel.
        memory_limit: Bytes of memory that may be asked for.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory_limit),) * 2)
    import tensorflow as tf

    answers = sys.stdout.buffer
    sys.stdout = sys.stderr
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        try:
            graph = tf.compat.v1.saved_model.load(session, ["serve"], path)
        except Exception as error:
            write_pairs(answers, str(error) or repr(error), {})
            return
        signatures = graph.signature_def
        write_pairs(answers, "", {})
        while True:
            try:
                name, inputs = read_pairs(sys.stdin.buffer)
            except EOFError:
                return
            try:
                outputs = _run(session, signatures, name, inputs)
            except Exception as error:
                write_pairs(answers, str(error) or repr(error), {})
            else:
                write_pairs(answers, "", outputs)


if __name__ == "__main__":
    main(*sys.argv[1:])
