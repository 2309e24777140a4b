"""Login sessions in this process, found by an id in a signed cookie. Tokens never leave the process.

A restart ends them all, and people log in again, mostly without noticing. `SharedSessions` keeps them across restarts
and replicas. Thread-safe.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from itsdangerous import BadData, URLSafeTimedSerializer

SESSION: Final = "cotenant_session"
"""Cookie with the id of a browser session, logged in or not."""
LOGIN: Final = "cotenant_login"
"""Cookie of a login that is under way."""
LOGIN_SECONDS: Final = 600


@dataclass(slots=True)
class LoginRecord:
    """One login as it is stored; times are Unix seconds; its tokens are renewed at `renew_seconds` (None: never)."""

    name: str
    groups: tuple[str, ...]
    ends_seconds: float
    id_token: str = field(default="", repr=False)
    token_ends_seconds: float = 0.0
    refresh_token: str = field(default="", repr=False)
    renew_seconds: float | None = None


@dataclass(slots=True)
class Session(LoginRecord):
    """One login; `lock` is held while its tokens are renewed."""

    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)


class Sessions:
    """Logins by the id of their browser session; above a maximum number, a new login ends the oldest."""

    blocking = False
    """Whether its methods wait for a store."""

    def __init__(self, most: int, now_seconds: Callable[[], float]) -> None:
        """Begin with no logins."""
        self._most = most
        self._now = now_seconds
        self._lock = threading.Lock()
        self._held: OrderedDict[str, Session] = OrderedDict()

    def begin(self, session: Session) -> str:
        """Store the login under a new id, and return the id."""
        id_ = fresh_id()
        with self._lock:
            self._held[id_] = session
            while len(self._held) > self._most:
                self._held.popitem(last=False)
        return id_

    def of(self, id_: str) -> Session | None:
        """Return the login with this id; None if it has ended or is unknown."""
        with self._lock:
            session = self._held.get(id_)
            if session is not None and self._now() >= session.ends_seconds:
                del self._held[id_]
                return None
            return session

    def end(self, id_: str) -> Session | None:
        """Remove the login and return it; None if it is unknown."""
        with self._lock:
            return self._held.pop(id_, None)

    def claim(self, _id: str, _session: Session) -> bool:
        """Return whether this process may renew the tokens now; always True here."""
        return True

    def keep(self, _id: str, _session: Session) -> None:
        """Store renewed tokens; here the session itself already has them."""

    def reread(self, id_: str) -> Session | None:
        """Return the login, read again in case another process has changed it; here the one of this process."""
        return self.of(id_)


class Seals:
    """Signs the values of cookies, each for one purpose, so that a value is not valid in another cookie."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def close(self, use: str, value: Any) -> str:
        """Return the value as a text signed for the purpose `use`."""
        return str(URLSafeTimedSerializer(self._key, salt=use).dumps(value))

    def open(self, use: str, text: str, most_seconds: int | None = None) -> Any:
        """Return the value of a text signed for `use`; None if the signature is invalid or the text too old."""
        try:
            return URLSafeTimedSerializer(self._key, salt=use).loads(text, max_age=most_seconds)
        except BadData:
            return None


def fresh_id() -> str:
    """Return an unguessable id of 256 random bits."""
    return secrets.token_urlsafe(32)
