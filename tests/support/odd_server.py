"""A server that answers with the very bytes it is told to."""

import contextlib
import socket
import threading


def http(body, status="200 OK", headers="", length=None):
    """Returns an answer as bytes; `length` may lie about its body."""
    body = body if isinstance(body, bytes) else body.encode()
    length = len(body) if length is None else length
    head = f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n"
    return head.encode() + body


@contextlib.contextmanager
def answering(answer):
    """Yields an address whose every request gets `answer`, and the requests."""
    listener = socket.create_server(("127.0.0.1", 0))
    requests = []

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(5)
                requests.append(_request(connection))
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    port = listener.getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}/v1/models/odd", requests
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


def _request(connection):
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(1 << 16)
    head, _, body = data.partition(b"\r\n\r\n")
    fields = dict(
        line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:]
    )
    while len(body) < int(fields.get(b"content-length", 0)):
        body += connection.recv(1 << 16)
    return head, body
