"""Shared logins while their store is away or read late, and keys of any bytes: one process, files in a folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cotenant.base.errors import SettingsError, StoreError
from cotenant.base.store.files import Folder
from cotenant.changes.access.settings import AccessSettings
from cotenant.dashboard.access import shared_sessions
from cotenant.dashboard.access.front import Front
from cotenant.dashboard.access.gate import Gate
from cotenant.dashboard.access.launch import Proof
from cotenant.dashboard.access.sessions import Session
from cotenant.dashboard.access.shared_sessions import SessionKeys, SharedSessions

KEY = b"k" * 40
FRONT = Front("http", "127.0.0.1:8050", "/")


class Replicas:
    """Replicas of a dashboard over one folder, and their common clock (Unix seconds)."""

    def __init__(self, root: Path) -> None:
        self.place = root / "sessions"
        self.seconds = 1000.0
        self.keys = _keys(root / "key", KEY)

    def new(self, folder: Folder | None = None) -> SharedSessions:
        return SharedSessions(folder or Folder(self.place.as_uri()), self.keys, 9, lambda: self.seconds)

    @contextmanager
    def away(self) -> Iterator[None]:
        """In place of the folder lies a file, so that nothing below it can be read or written."""
        aside = self.place.with_name("aside")
        self.place.rename(aside)
        self.place.touch()
        yield
        self.place.unlink()
        aside.rename(self.place)


def _keys(file: Path, content: bytes) -> SessionKeys:
    file.write_bytes(content)
    return SessionKeys(str(file))


def _login() -> Session:
    """A login whose tokens are due to be renewed."""
    return Session("otto", (), 9000.0, "token-0", 1100.0, "refresh-0", 1000.0)


def _tokens(session: Session | None) -> str:
    assert session is not None
    return session.refresh_token


@pytest.fixture
def replicas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Replicas:
    monkeypatch.setattr(shared_sessions, "REREAD_SECONDS", 0.0)
    return Replicas(tmp_path)


def test_renewed_tokens_that_the_store_did_not_take_are_stored_at_the_next_request(replicas: Replicas) -> None:
    sessions, other = replicas.new(), replicas.new()
    id_ = sessions.begin(_login())
    session = sessions.of(id_)
    assert session is not None and sessions.claim(id_, session)
    session.refresh_token, session.renew_seconds = "refresh-1", 5000.0  # the provider takes refresh-0 no more
    with replicas.away():
        sessions.keep(id_, session)
        assert _tokens(sessions.of(id_)) == "refresh-1"
    assert _tokens(other.of(id_)) == "refresh-0"
    assert _tokens(sessions.of(id_)) == "refresh-1"
    read = other.of(id_)
    assert read is not None and (read.refresh_token, read.renew_seconds) == ("refresh-1", 5000.0)


def test_nobody_renews_while_the_store_is_away_and_the_person_stays_logged_in(replicas: Replicas) -> None:
    sessions = replicas.new()
    id_ = sessions.begin(_login())
    session = sessions.of(id_)
    assert session is not None
    with replicas.away():
        assert not sessions.claim(id_, session)
        assert sessions.of(id_) is session and session.renew_seconds == 1000.0 + shared_sessions.CLAIM_SECONDS


def test_a_login_that_nobody_has_read_fails_at_once_while_the_store_is_known_to_be_away(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = replicas.new()
    id_ = sessions.begin(_login())
    other = replicas.new()
    with replicas.away(), pytest.raises(StoreError, match="cannot read"):
        other.of(id_)
    with pytest.raises(StoreError, match="cannot read"):  # it is there again, and has not been asked
        other.of(id_)
    monkeypatch.setattr(shared_sessions, "AWAY_SECONDS", 0.0)
    later = replicas.new()
    with replicas.away(), pytest.raises(StoreError):
        later.of(id_)
    assert _tokens(later.of(id_)) == "refresh-0"


class LateFolder(Folder):
    """Answers one read late: `answered` is set when the content is read, and it is returned after `go`."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.late = False
        self.answered, self.go = threading.Event(), threading.Event()

    def read_marked(self, name: str) -> tuple[bytes, str] | None:
        stored = super().read_marked(name)
        if self.late:
            self.late = False
            self.answered.set()
            assert self.go.wait(30)
        return stored


def test_a_late_read_does_not_undo_a_renewal(replicas: Replicas) -> None:
    folder = LateFolder(replicas.place.as_uri())
    sessions, other = replicas.new(folder), replicas.new()
    id_ = other.begin(_login())
    session = sessions.of(id_)
    stored = other.of(id_)
    assert session is not None and stored is not None
    assert other.claim(id_, stored)  # so that the late read brings another mark
    stored.renew_seconds = 1000.0
    other.keep(id_, stored)
    folder.late = True
    late: list[Session | None] = []
    reader = threading.Thread(target=lambda: late.append(sessions.of(id_)))
    reader.start()
    assert folder.answered.wait(30)
    mine = sessions.reread(id_)
    assert mine is not None and sessions.claim(id_, mine)
    folder.go.set()
    reader.join(30)
    assert late == [mine]
    mine.refresh_token = "refresh-1"
    sessions.keep(id_, mine)
    assert _tokens(sessions.of(id_)) == _tokens(replicas.new().of(id_)) == "refresh-1"


def test_who_read_a_login_before_somebody_renewed_it_does_not_write_the_old_tokens_back(replicas: Replicas) -> None:
    sessions, other = replicas.new(), replicas.new()
    id_ = sessions.begin(_login())
    old, theirs = sessions.of(id_), other.of(id_)
    assert old is not None and theirs is not None and other.claim(id_, theirs)
    theirs.refresh_token = "refresh-1"
    other.keep(id_, theirs)
    assert _tokens(sessions.of(id_)) == "refresh-1"
    assert not sessions.claim(id_, old)
    assert _tokens(replicas.new().of(id_)) == "refresh-1"


@pytest.mark.parametrize("key", [b"\n" + b"\xf0" * 30 + b" ", b"\xf0" * 31 + b"\n"], ids=["both", "end"])
def test_random_bytes_that_look_like_white_space_are_a_key(tmp_path: Path, key: bytes) -> None:
    assert len(_keys(tmp_path / "key", key).of("cookies")) == 32


def test_a_newline_after_a_text_is_no_part_of_the_key(tmp_path: Path) -> None:
    text, line = (_keys(tmp_path / "key", content).of("cookies") for content in (KEY, KEY + b"\n"))
    assert text == line
    raw = b"\xf0" * 32
    assert _keys(tmp_path / "key", raw + b"\n").of("cookies") == _keys(tmp_path / "key", raw).of("cookies")
    with pytest.raises(SettingsError, match="holds 31 bytes"):
        _keys(tmp_path / "key", b"k" * 31 + b"\n")


def test_a_restart_ends_the_launch_cookie_also_with_a_session_key_file(tmp_path: Path) -> None:
    _keys(tmp_path / "key", KEY)
    settings = AccessSettings(session_key_file=str(tmp_path / "key"))
    monday, tuesday = (Gate(settings, "/", launch=token).launch for token in ("monday", "tuesday"))
    sent = {monday.cookie_name(FRONT): monday.cookie()}
    assert (monday.proof(FRONT, {}, sent), tuesday.proof(FRONT, {}, sent)) == (Proof.COOKIE, Proof.NONE)


def test_a_session_file_copied_over_another_ones_is_unreadable(replicas: Replicas) -> None:
    first = replicas.new()
    admin = first.begin(Session("admin", ("admins",), 9000.0, "id-token", 1100.0, "refresh", 1000.0))
    mine = first.begin(_login())
    theirs, own = (replicas.place / shared_sessions._name(id_) for id_ in (admin, mine))
    own.write_bytes(theirs.read_bytes())
    # Another replica, which has read neither: the copy is encrypted for another id.
    assert replicas.new().of(mine) is None
    session = replicas.new().of(admin)
    assert session is not None and session.name == "admin"


def test_a_session_file_put_back_after_the_logout_lives_no_more(replicas: Replicas) -> None:
    first, second = replicas.new(), replicas.new()
    mine = first.begin(_login())
    file = replicas.place / shared_sessions._name(mine)
    content = file.read_bytes()
    assert second.of(mine) is not None
    first.end(mine)
    file.write_bytes(content)
    assert first.of(mine) is None
    # Neither for one that never knew it, nor for one that read it before.
    assert replicas.new().of(mine) is None
    replicas.seconds += 1
    assert second.reread(mine) is None
    # What says so goes when the login would have ended by itself.
    replicas.seconds = 9001.0
    first.begin(Session("otto", (), 99000.0, "t", 11000.0, "r", 10000.0))
    assert not list(replicas.place.glob("*.ended"))


@pytest.mark.parametrize(
    "id_",
    [
        "",
        ".",
        "../../../key",
        "000000009000",
        "000000009000.",
        "000000009000./../key",
        "000000009000.\x00",
        "-00000009000.x",
        "\u00b9" * 12 + ".x",  # digits by their looks, and no number
        "\u0663" * 12 + ".x",
    ],
)
def test_an_id_that_nobody_was_given_is_nobodys_and_reads_no_other_file(replicas: Replicas, id_: str) -> None:
    first = replicas.new()
    first.begin(_login())
    before = {file: file.read_bytes() for file in replicas.place.iterdir()}
    assert first.of(id_) is None
    assert first.reread(id_) is None
    assert first.end(id_) is None
    files = {file: file.read_bytes() for file in replicas.place.iterdir() if file.suffix != ".ended"}
    assert files == before and (replicas.place.parent / "key").exists()


@pytest.mark.parametrize("part", [slice(0, 0), slice(0, -1), slice(1, None), slice(0, 60)])
def test_a_part_of_a_session_file_is_nobodys(replicas: Replicas, part: slice) -> None:
    mine = replicas.new().begin(_login())
    file = replicas.place / shared_sessions._name(mine)
    file.write_bytes(file.read_bytes()[part])
    assert replicas.new().of(mine) is None


def test_two_session_files_that_changed_places_are_nobodys(replicas: Replicas) -> None:
    first = replicas.new()
    ids = [first.begin(Session(name, (name,), 9000.0, "t", 1100.0, "r", 1000.0)) for name in ("ada", "eve")]
    files = [replicas.place / shared_sessions._name(id_) for id_ in ids]
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, reversed(contents), strict=True):
        file.write_bytes(content)
    assert [replicas.new().of(id_) for id_ in ids] == [None, None]
