"""EDGE: logins that several replicas of the dashboard share: one encrypted file each, in a folder or a bucket.

A file's name is the time at which its login ends and a digest of its id, so that a replica removes ended logins without
reading them. Contents are encrypted with a key that only the dashboards have (`SessionKeys`), different for each id:
whoever reads the files gets no token, and a file copied over another one is unreadable. A login that was ended leaves a
marker file until its regular end, so that restoring its former content does not revive it. A replica uses what it read
for REREAD_SECONDS, and longer while the store is unavailable. Renewed tokens that could not be stored stay in its copy
and are stored at a later request.
"""

from __future__ import annotations

import hashlib
import hmac
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec
import structlog
from cryptography.fernet import Fernet, InvalidToken

from cotenant.base.errors import SettingsError, StoreConflict, StoreError
from cotenant.base.json_documents.inherited import inherited_fields
from cotenant.base.json_documents.json_decoders import UNDECODABLE
from cotenant.base.store.files import Folder
from cotenant.dashboard.access.sessions import LoginRecord, Session, Sessions, fresh_id

REREAD_SECONDS: Final = 2.0
"""Time after a logout on one replica during which another replica may still let the person in."""
AWAY_SECONDS: Final = 30.0
"""Pause before a store that did not answer is asked again; known people stay logged in, others get an error at once."""
CLAIM_SECONDS: Final = 30.0
"""Time that one replica may take to renew a login's tokens before another replica tries."""
KEY_BYTES: Final = 32
ENDED: Final = ".ended"
"""Suffix of the name of a login that ended before its time."""
_log = structlog.get_logger(__name__)


class SessionKeys:
    """Keys that all replicas share, one for each purpose, derived from a file that only the replicas can read."""

    def __init__(self, file: str) -> None:
        """Read the file; raise SettingsError if it cannot be read or has fewer than 32 bytes.

        Surrounding white space is not part of the key, except in binary content that would be shorter than 32 bytes
        without it.
        """
        try:
            content = Path(file).read_bytes()
        except OSError as error:
            raise SettingsError(f"access.session_key_file {file} cannot be read: {error.strerror}") from error
        stripped = content.strip()
        self._secret = stripped if len(stripped) >= KEY_BYTES or content.isascii() else content
        if len(self._secret) < KEY_BYTES:
            fix = "Write 32 or more random bytes into this key file, as `openssl rand -base64 48` prints them."
            raise SettingsError(f"access.session_key_file {file} holds {len(self._secret)} bytes", fix=fix)

    def of(self, use: str) -> bytes:
        """Return the key for one purpose, 32 bytes."""
        return hmac.new(self._secret, f"cotenant {use}".encode(), hashlib.sha256).digest()


class _Copy:
    """This replica's copy of a login, with its version mark and read time; `unsaved`: the store has older tokens."""

    def __init__(self, session: Session, mark: str, unsaved: bool = False) -> None:
        self.session, self.mark, self.unsaved, self.read_seconds = session, mark, unsaved, time.monotonic()
        self.reading = threading.Lock()
        """Held by who reads it again; all others use what is here."""


class SharedSessions(Sessions):
    """Logins by the id of their browser session, shared by all replicas."""

    blocking = True

    def __init__(self, folder: Folder, keys: SessionKeys, most: int, now_seconds: Callable[[], float]) -> None:
        """Set up access to the store without contacting it yet."""
        super().__init__(most, now_seconds)
        self._folder = folder
        self._key = keys.of("sessions")
        self._copies: dict[str, _Copy] = {}
        self._copies_lock = threading.Lock()
        self._ended: dict[str, float] = {}
        """Names of logins that ended on this replica, with the time at which they would have."""
        self._away: tuple[float, StoreError] | None = None
        """Until when (monotonic seconds) the store is not asked, and what it failed with."""

    def begin(self, session: Session) -> str:
        """Store the login under a new id and return the id; raise StoreError if the store fails."""
        id_ = f"{int(session.ends_seconds):012d}.{fresh_id()}"
        # Remove logins that have ended, and the one that ends first when there are too many.
        names = [name for name in self._folder.names() if name[:12].isdigit()]
        ended = [name for name in names if int(name[:12]) <= self._now()]
        living = [name for name in names if int(name[:12]) > self._now() and not name.endswith(ENDED)]
        too_many = len(living) - self._most + 1
        for name in (*ended, *living[: max(0, too_many)]):
            self._folder.remove(name)
        self._store(id_, session, None)
        return id_

    def of(self, id_: str) -> Session | None:
        """Return the login with this id; None if it has ended or is unknown.

        While the store is unavailable, this replica's copy is returned; without a copy, StoreError is raised. After a
        failure the store is not tried again for AWAY_SECONDS, unless renewed tokens have to be stored.
        """
        name, copy = _name(id_), self._copies.get(id_)
        if not name or (copy is not None and self._now() >= copy.session.ends_seconds):
            self._forget(id_)
            return None
        away = self._failure()
        if copy is None:
            if away is not None:
                raise StoreError(away.message, fix=away.fix)
            return self._read(id_, name)
        # Before another replica renews with the old ones, renewed tokens have to be stored: that is tried sooner.
        fresh = time.monotonic() - copy.read_seconds < REREAD_SECONDS
        if fresh or (away is not None and not copy.unsaved) or not copy.reading.acquire(blocking=False):
            return copy.session
        try:
            return self._read(id_, name)
        except StoreError:
            copy.read_seconds = time.monotonic()
            return copy.session
        finally:
            copy.reading.release()

    def end(self, id_: str) -> Session | None:
        """Remove the login and return it; None if it is unknown."""
        if not (name := _name(id_)):
            return None
        session = self.of(id_)
        self._forget(id_)
        lasting = {other: ends for other, ends in self._ended.items() if ends > self._now()}
        self._ended = {**lasting, name: float(name[:12])}
        with suppress(StoreConflict):  # another replica ended it at the same moment
            self._folder.swap(name + ENDED, b"", None)
        self._folder.remove(name)
        return session

    def claim(self, id_: str, session: Session) -> bool:
        """Return whether this replica may renew the tokens now; the others keep the present tokens meanwhile.

        The first claim in the store wins. If the store is unavailable, the claim is repeated after CLAIM_SECONDS.
        """
        copy = self._copies.get(id_)
        if copy is None or copy.session is not session:  # it has been read again meanwhile
            return False
        due, session.renew_seconds = session.renew_seconds, self._now() + CLAIM_SECONDS
        if self._failure() is not None:
            return False
        try:
            self._store(id_, session, copy.mark)
        except StoreConflict:
            session.renew_seconds = due
            copy.read_seconds = float("-inf")  # another replica has renewed or ended it: read it again
            return False
        except StoreError:
            return False
        return True

    def keep(self, id_: str, session: Session) -> None:
        """Store renewed tokens, or retry later if the store fails, because the provider rejects the old ones."""
        copy = self._copies.get(id_)
        if copy is None:
            return
        try:
            self._store(id_, session, copy.mark)
        except StoreConflict:
            return  # it was ended meanwhile
        except StoreError as error:
            self._remember(id_, _Copy(session, copy.mark, unsaved=True))
            _log.warning("session_unsaved", error=error.message, fix=error.fix)

    def reread(self, id_: str) -> Session | None:
        """Return the stored login; None for an unknown id."""
        name = _name(id_)
        return self._read(id_, name) if name else None

    def _read(self, id_: str, name: str) -> Session | None:
        before = self._copies.get(id_)
        with self._watch_store():
            stored = self._folder.read_marked(name)
            ended = name in self._ended or (stored is not None and self._folder.read_marked(name + ENDED) is not None)
        record = self._decrypt_record(id_, stored[0]) if stored and not ended else None
        if stored is None or record is None or self._now() >= record.ends_seconds:
            self._forget(id_)
            return None
        if before is not None and before.mark == stored[1]:
            self._save(id_, before)
            before.read_seconds = time.monotonic()
            return self._copies.get(id_, before).session
        # The session to go on with: what was read, or what this replica wrote while it read that.
        copy = _Copy(Session(**inherited_fields(record, LoginRecord)), stored[1])
        with self._copies_lock:
            present = self._copies.get(id_)
            if present is not before:
                return (present or copy).session
            self._put(id_, copy)
        return copy.session

    def _save(self, id_: str, copy: _Copy) -> None:
        """Store renewed tokens that could not be stored before, unless they are just being renewed again."""
        if not copy.unsaved or not copy.session.lock.acquire(blocking=False):
            return
        try:
            with suppress(StoreConflict):
                self._store(id_, copy.session, copy.mark)
        finally:
            copy.session.lock.release()

    def _store(self, id_: str, session: Session, mark: str | None) -> None:
        content = self._fernet(id_).encrypt(msgspec.json.encode(inherited_fields(session, LoginRecord)))
        with self._watch_store():
            new_mark = self._folder.swap(_name(id_), content, mark)
        self._remember(id_, _Copy(session, new_mark))

    @contextmanager
    def _watch_store(self) -> Iterator[None]:
        """Record whether the store answers within this context."""
        try:
            yield
        except StoreConflict:
            raise
        except StoreError as error:
            self._away = (time.monotonic() + AWAY_SECONDS, error)
            raise
        self._away = None

    def _failure(self) -> StoreError | None:
        """Return the store's error if it failed within the last AWAY_SECONDS, else None."""
        away = self._away
        return away[1] if away is not None and time.monotonic() < away[0] else None

    def _fernet(self, id_: str) -> Fernet:
        return Fernet(urlsafe_b64encode(hmac.new(self._key, id_.encode(), hashlib.sha256).digest()))

    def _decrypt_record(self, id_: str, content: bytes) -> LoginRecord | None:
        """Return the record; None, with a log line, if it was encrypted with another key or for another id."""
        try:
            return msgspec.json.decode(self._fernet(id_).decrypt(content), type=LoginRecord)
        except (InvalidToken, *UNDECODABLE):
            fix = "Give all replicas the same access.session_key_file; let no other program write to access.sessions."
            _log.warning("session_unreadable", fix=fix)
            return None

    def _remember(self, id_: str, copy: _Copy) -> None:
        with self._copies_lock:
            self._put(id_, copy)

    def _put(self, id_: str, copy: _Copy) -> None:
        self._copies[id_] = copy
        while len(self._copies) > self._most:
            del self._copies[next(iter(self._copies))]

    def _forget(self, id_: str) -> None:
        with self._copies_lock:
            self._copies.pop(id_, None)


def _name(id_: str) -> str:
    """Return the file name for an id; "" for the id of a browser that never logged in."""
    ends, dot, _ = id_.partition(".")
    is_of_login = dot and len(ends) == 12 and ends.isascii() and ends.isdigit()
    return f"{ends}-{hashlib.sha256(id_.encode()).hexdigest()}" if is_of_login else ""
