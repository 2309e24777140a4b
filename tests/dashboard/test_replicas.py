"""Several replicas: logins that outlive a process and are the same in each, and acts that are done once."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest
import requests

from cotenant.base.errors import SettingsError, StoreError
from cotenant.base.store import buckets
from cotenant.base.store.buckets import BucketPatience
from cotenant.base.store.files import Folder
from cotenant.changes.access.settings import AccessSettings
from cotenant.dashboard.access import gate, shared_sessions
from cotenant.dashboard.access.gate import Gate
from cotenant.dashboard.access.sessions import SESSION, Seals, Session, fresh_id
from cotenant.dashboard.access.shared_sessions import SessionKeys, SharedSessions
from tests.support import access as support
from tests.support import careless_s3, replicas
from tests.support.access import Browser, dashboard
from tests.support.careless_s3 import CarelessServer
from tests.support.oidc_provider import Provider, running
from tests.support.s3_server import serving

pytestmark = [pytest.mark.slow, pytest.mark.server]


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "session-key"
    file.write_text(secrets.token_urlsafe(48))
    return file


@pytest.fixture
def provider() -> Iterator[Provider]:
    with running(Provider(people=dict(support.PEOPLE))) as oidc_provider:
        yield oidc_provider


def shared(provider: Provider, tmp_path: Path, key_file: Path, **more: Any) -> AccessSettings:
    place = {"sessions": (tmp_path / "sessions").as_uri(), "session_key_file": str(key_file)}
    return support.by_login(provider, tmp_path, **place, **more)


def test_a_login_holds_on_every_replica_and_after_a_restart_until_somebody_logs_out(
    provider: Provider, tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_sessions, "REREAD_SECONDS", 0.0)
    access = shared(provider, tmp_path, key_file)
    with dashboard(tmp_path, access) as text, dashboard(tmp_path, access) as other:
        browser = Browser(text)
        assert browser.log_in("otto@example.com").status_code == 303
        browser.address = other  # cookies are of the host: the balancer's
        me = browser.get("/api/v1/me")
        assert (me.status_code, me.json()["name"]) == (200, "otto@example.com")
        assert browser.get("/", page=True).status_code == 200
    with dashboard(tmp_path, access) as restarted, dashboard(tmp_path, access) as second:
        browser.address = restarted
        assert browser.get("/api/v1/me").json()["name"] == "otto@example.com"
        browser.address = second
        assert browser.get("/", page=True).status_code == 200
        assert browser.post("/auth/logout").status_code == 200
        browser.address = restarted
        assert browser.get("/api/v1/me").status_code == 401
    # What is left says that the login ended, and holds nothing of it.
    (session_file,) = (p for p in (tmp_path / "sessions").iterdir() if p.name != ".swap")
    assert (session_file.suffix, session_file.read_bytes()) == (".ended", b"")


def test_what_is_stored_of_a_login_tells_nothing_without_the_key(
    provider: Provider, tmp_path: Path, key_file: Path
) -> None:
    with dashboard(tmp_path, shared(provider, tmp_path, key_file)) as url:
        browser = Browser(url)
        browser.log_in("otto@example.com")
        cookie = browser.cookie("cotenant_session")
    (file,) = [p for p in (tmp_path / "sessions").iterdir() if p.name != ".swap"]
    (refresh,) = provider.refreshes
    stored = file.read_bytes()
    assert b"otto" not in stored and refresh.encode() not in stored
    assert file.name.encode() not in cookie.encode() and file.stat().st_mode & 0o077 == 0
    key_file.write_text(secrets.token_urlsafe(48))
    with dashboard(tmp_path, shared(provider, tmp_path, key_file)) as url:
        browser.address = url
        assert browser.get("/api/v1/me").status_code == 401


def test_of_two_replicas_one_renews_a_token_and_the_other_takes_what_it_got(
    provider: Provider, tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_sessions, "REREAD_SECONDS", 0.0)
    access = shared(provider, tmp_path, key_file)
    with dashboard(tmp_path, access) as text, dashboard(tmp_path, access) as other:
        browser = Browser(text)
        provider.lifetime_seconds = 30  # sooner than the 60 s before which a token is renewed
        browser.log_in("otto@example.com")
        provider.lifetime_seconds = 300
        for address in (other, text, other, text):
            browser.address = address
            assert browser.get("/api/v1/me").json()["name"] == "otto@example.com"
    assert provider.paths.count("/token") == 2  # the login, and one renewal


def test_who_lost_the_race_for_a_renewal_asks_nobody(tmp_path: Path, key_file: Path) -> None:
    folder, keys = Folder((tmp_path / "s").as_uri()), SessionKeys(str(key_file))
    sessions, other = (SharedSessions(folder, keys, 2, lambda: 1000.0) for _ in range(2))
    id_ = sessions.begin(Session("otto", (), 5000.0, "t", 1010.0, "r", 950.0))
    session, same = sessions.of(id_), other.of(id_)
    assert session is not None and same is not None and same.refresh_token == "r"
    assert [sessions.claim(id_, session), other.claim(id_, same)] == [True, False]
    ids = [id_, *(sessions.begin(Session(str(n), (), 6000.0 + n)) for n in range(2))]
    assert [other.of(i) is not None for i in ids] == [False, True, True]  # two at most: the first to end has gone


def test_who_is_known_stays_logged_in_while_the_store_is_away(
    tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_sessions, "REREAD_SECONDS", 0.0)
    monkeypatch.setattr(buckets, "MOST_RETRIES", 0)
    careless = CarelessServer(conditions=True)
    with careless_s3.running(careless):
        for name, value in {"ENDPOINT_URL": careless.address, "ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        folder, keys = Folder("s3://logins/s"), SessionKeys(str(key_file))
        sessions, other = (SharedSessions(folder, keys, 5, lambda: 1000.0) for _ in range(2))
        id_ = sessions.begin(Session("otto", (), 5000.0))
        assert (sessions.of(id_) or pytest.fail("not logged in")).name == "otto"
    session = sessions.of(id_)
    assert session is not None and session.name == "otto"
    with pytest.raises(StoreError):
        other.of(id_)


def test_probes_answer_while_the_store_of_logins_accepts_requests_and_answers_none(
    provider: Provider, tmp_path: Path, key_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "QUICK", BucketPatience(retry_seconds=0.2, timeout_seconds=0.5), raising=False)
    seals = Seals(SessionKeys(str(key_file)).of("cookies"))
    with ExitStack() as stack:
        silent = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=200))
        for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{silent.getsockname()[1]}")
        place = {"sessions": "s3://logins/s", "session_key_file": str(key_file)}
        url = stack.enter_context(dashboard(tmp_path, support.by_login(provider, tmp_path, **place)))
        address = ("127.0.0.1", urlsplit(url).port)
        people = [stack.enter_context(socket.create_connection(address, timeout=60)) for _ in range(45)]
        for person in people:  # more than the 40 threads that a web server has for everything
            cookie = f"{SESSION}={seals.close(SESSION, f'{5000:012d}.{fresh_id()}')}"
            person.sendall(f"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode())
        probes = [requests.get(f"{url}/{name}", timeout=10) for name in ("livez", "readyz", "livez")]
        assert [probe.status_code for probe in probes] == [200, 200, 200]
        assert {person.recv(12) for person in people} == {b"HTTP/1.1 503"}


def test_a_key_that_is_missing_or_short_is_said_by_its_file(provider: Provider, tmp_path: Path, key_file: Path) -> None:
    key_file.write_text("short")
    with pytest.raises(SettingsError, match="holds 5 bytes"):
        Gate(shared(provider, tmp_path, key_file), "/")
    with pytest.raises(SettingsError, match="cannot be read"):
        Gate(shared(provider, tmp_path, tmp_path / "nothing"), "/")
    with pytest.raises(msgspec.ValidationError, match="session_key_file"):
        support.settings_of(sessions="s3://b/x")


@pytest.mark.parametrize(
    ("people", "kills", "in_bucket"), [(3, 1, False), pytest.param(20, 4, True, marks=pytest.mark.soak)]
)
def test_a_killed_replica_costs_no_login_and_doubles_no_act(
    tmp_path: Path, people: int, kills: int, in_bucket: bool
) -> None:
    with serving(tmp_path / "s3") if in_bucket else nullcontext() as server:
        report = replicas.measured(tmp_path, people, kills, server)
    assert (report.broken, report.lost_logins, report.doubled) == ([], [], [])
    assert report.kills == kills and report.accepted >= people and report.rolled_back > 0
