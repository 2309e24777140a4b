"""EDGE: post one JSON document to a webhook; the URL is secret, so messages name only its host.

The server's certificate is verified, no redirect sends data to another origin, and however slow the response is, `post`
returns within twice the timeout of the settings. Nothing is retried: a chat message that arrives twice is worse than
one that is missing.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from cotenant.base.errors import CotenantError, NotDelivered, UsageError
from cotenant.base.settings.sections import NotifySettings

if TYPE_CHECKING:
    from requests import Response

REDIRECTS: Final = 3
_SAME_METHOD: Final = frozenset({307, 308})  # redirects that keep a POST a POST; others would turn it into a GET
_SHOWN_BYTES: Final = 200
_ADDRESS_BYTES: Final = 4096
_SECRET_CHARACTERS: Final = 8  # a part of the address from this length on is not shown, not even its beginning


def post(url: str, body: bytes, settings: NotifySettings) -> None:
    """Post the document; raise NotDelivered if the receiver did not accept it, UsageError if the URL is invalid."""
    parts = origin_of(url)
    caught: list[BaseException] = []

    def send() -> None:
        try:
            _send(url, body, settings)
        except BaseException as error:  # noqa: BLE001 - carried to the caller's thread
            caught.append(error)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    sender.join(2 * settings.timeout_seconds)
    if sender.is_alive():
        raise NotDelivered(f"{parts.hostname} took longer than {2 * settings.timeout_seconds:g} seconds to answer")
    if not caught:
        return
    if isinstance(caught[0], CotenantError):
        raise caught[0]
    raise NotDelivered(f"no answer from {parts.hostname}: {type(caught[0]).__name__}")  # its text may hold the address


def origin_of(url: str) -> SplitResult:
    """Return the parsed URL; raise UsageError (without the URL) unless it is http or https with a host."""
    try:
        parts = urlsplit(url)
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        has_host = False
    if not has_host or parts.scheme not in ("http", "https") or not url.isprintable() or " " in url:
        raise UsageError("the receiver's address is not http://HOST or https://HOST", fix="Check --notify-url.")
    return parts


def receiver_of(place: str) -> str:
    """Return the receiver's URL; `place` is that URL or a file that contains it, or "" for no receiver.

    A UsageError names the file, never its content.
    """
    if not place:
        return ""
    if place.startswith(("http://", "https://")):
        url = place
    else:
        try:
            with Path(place).open("rb") as stream:
                url = stream.read(_ADDRESS_BYTES).decode("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "its text is not UTF-8"
            raise UsageError(f"the file {place} with the receiver's address cannot be read: {why}") from error
    origin_of(url)
    return url


def _send(url: str, body: bytes, settings: NotifySettings) -> None:
    """Post, following redirects within the origin."""
    import requests

    from cotenant.base.http.requests_adapter import CertificateAdapter

    start = origin_of(url)
    session = requests.Session()
    session.mount("https://", CertificateAdapter())
    session.auth = lambda request: request  # no password from ~/.netrc either
    try:
        for _ in range(REDIRECTS + 1):
            answer = session.post(
                url,
                data=body,
                headers={"Content-Type": "application/json", "User-Agent": "cotenant"},
                timeout=settings.timeout_seconds,
                verify=settings.ca_file or True,
                allow_redirects=False,
                stream=True,
            )
            if not 300 <= answer.status_code < 400:
                return _require_accepted(answer, start)
            url = _next(answer, url, start)
    except (requests.RequestException, OSError) as error:
        raise NotDelivered(f"no answer from {start.hostname}: {_cause(error)}") from None  # it would hold the address
    finally:
        session.close()
    raise NotDelivered(f"{start.hostname} redirects more than {REDIRECTS} times")


def _next(answer: Response, url: str, start: SplitResult) -> str:
    """Return the redirect target if it has the same origin and the request stays the same; else raise NotDelivered."""
    target = urljoin(url, answer.headers.get("Location", ""))
    parts = urlsplit(target)
    if answer.status_code not in _SAME_METHOD or not answer.headers.get("Location"):
        raise NotDelivered(f"{start.hostname} answered {answer.status_code} instead of accepting the message")
    if (parts.scheme, parts.hostname, parts.port) != (start.scheme, start.hostname, start.port):
        raise NotDelivered(
            f"{start.hostname} redirects to {parts.scheme}://{parts.hostname}, which is another origin; not followed",
            fix="Set the receiver's URL to the address after the redirect.",
        )
    return target


def _require_accepted(answer: Response, start: SplitResult) -> None:
    """Return if the receiver accepted the message; else raise NotDelivered with the start of its response.

    Many servers repeat the path that they do not know, which is the secret: the response is then not shown.
    """
    if 200 <= answer.status_code < 300:
        return
    text = answer.raw.read(_SHOWN_BYTES, decode_content=True).decode("utf-8", "replace").strip()
    secrets = [part for part in re.split(r"[/?&=]", f"{start.path}?{start.query}") if len(part) >= _SECRET_CHARACTERS]
    if any(part[:_SECRET_CHARACTERS] in unquote(text) or part[:_SECRET_CHARACTERS] in text for part in secrets):
        text = ""
    raise NotDelivered(f"{start.hostname} answered {answer.status_code}{': ' if text else ''}{text}")


def _cause(error: Exception) -> str:
    """Return the cause of an error as text that does not contain the address."""
    import requests

    causes = {
        requests.exceptions.SSLError: "the receiver's certificate cannot be verified",
        requests.exceptions.ProxyError: "the proxy refused the connection",
        requests.exceptions.ConnectTimeout: "the connection was not made in time",
        requests.exceptions.ReadTimeout: "the receiver did not answer in time",
        requests.exceptions.ConnectionError: "no connection",
    }
    return next((text for kind, text in causes.items() if isinstance(error, kind)), type(error).__name__)
