"""Sends JSON over HTTP, and says what came back instead of it."""

import http.client
import json
import urllib.error
import urllib.request

# Of the text of an answer, in the message of an error.
_SHOWN = 300


class ServerError(RuntimeError):
    """A server that cannot be reached, refuses, or answers what is no answer.

    Args:
        url: What was asked.
        reason: What is wrong, in words.
        status: Status code of HTTP, None where there was no answer.
        text: The answer, as far as it was read.

    Attributes:
        url: As given.
        status: As given.
        text: As given.
    """

    def __init__(self, url, reason, status=None, text=""):
        self.url, self.status, self.text = url, status, text
        parts = [f"{url}: {reason}"]
        if status is not None:
            parts.append(f"Status: {status}.")
        if text:
            more = " ..." if len(text) > _SHOWN else ""
            parts.append(f"The answer begins: {text[:_SHOWN]}{more}")
        super().__init__(" ".join(parts))


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirected POST would arrive as a GET, without its body."""

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        return None


_opener = urllib.request.build_opener(_NoRedirects)


def send(url, body, timeout, max_bytes):
    """Sends a request and reads the JSON object that answers it.

    Args:
        url: Where to.
        body: What to send as JSON; None to ask by GET.
        timeout: Seconds to wait.
        max_bytes: Largest answer to read.

    Returns:
        A dictionary.

    Raises:
        ServerError: there is no such answer; says what there is.
    """
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    status, content = _exchange(
        urllib.request.Request(url, data, headers), timeout, max_bytes
    )
    text = content.decode(errors="replace")
    try:
        answer = json.loads(content)
    except ValueError:
        kind = "is no JSON" if text.strip() else "is empty"
        reason = f"The answer {kind}. Is this the address of a model server?"
        raise ServerError(url, reason, status, text) from None
    if not isinstance(answer, dict):
        reason = "The answer is no JSON object."
        raise ServerError(url, reason, status, text)
    if "error" in answer:
        reason = f"The server refuses: {answer['error']}"
        raise ServerError(url, reason, status, text)
    return answer


def _exchange(request, timeout, max_bytes):
    """Returns the status and the content of an answer that came whole."""
    url, status, content = request.full_url, None, b""
    try:
        with _opener.open(request, timeout=timeout) as answer:
            status = answer.status
            content = answer.read(max_bytes + 1)
            # A body that is cut ends a partial read without an error.
            missing = answer.length if len(content) <= max_bytes else None
    except urllib.error.HTTPError as error:
        raise _refusal(url, error, max_bytes) from None
    except TimeoutError:
        raise ServerError(url, f"No answer within {timeout} s.") from None
    except http.client.IncompleteRead as error:
        text = error.partial.decode(errors="replace")
        raise ServerError(url, "The answer is cut.", status, text) from None
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        raise ServerError(
            url,
            f"The server cannot be reached: {reason or type(error).__name__}. "
            "Is it running, and is this its address?",
        ) from None
    if len(content) > max_bytes:
        raise ServerError(
            url,
            f"The answer is larger than {max_bytes} bytes. Pass a larger "
            "`max_bytes` to `Client`, or ask for fewer rows.",
            status,
        )
    if missing:
        text = content.decode(errors="replace")
        raise ServerError(url, "The answer is cut.", status, text)
    return status, content


def _refusal(url, error, max_bytes):
    """Returns the error for an answer with another status than success."""
    try:
        text = error.read(max_bytes).decode(errors="replace")
    except (OSError, http.client.HTTPException):
        text = ""
    if 300 <= error.code < 400:
        where = error.headers.get("Location")
        reason = f"The server sends on to {where}. Use that address."
    else:
        reason = "The server refuses."
        try:
            reason = f"The server refuses: {json.loads(text)['error']}"
        except (ValueError, TypeError, KeyError):
            pass
    return ServerError(url, reason, error.code, text)
