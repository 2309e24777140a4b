"""Two dashboards behind a balancer, and people who click while one of the two is killed.

Each replica is a process with the settings of a scene: a login, the ledger and the logins in a place that both share.
The balancer passes connections on in turn, and to the other replica where one does not listen. A person whose
connection breaks clicks again, with the same key, as a browser's user does.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import msgspec
import requests

from cotenant.base.identity import WorkloadRef
from cotenant.base.ledger.bucket_ledger import open_ledger
from cotenant.base.ledger.chain import LedgerRow
from cotenant.changes.model.change import ChangeEvent
from cotenant.changes.model.settings import ledger_location
from cotenant.dashboard.changes import review
from cotenant_lab.simulation.api_server import AccessRule, Account
from tests.cluster.process import free_port
from tests.cluster.waiting import wait_for
from tests.support import acting
from tests.support.access import Browser, by_login
from tests.support.acting import Scene
from tests.support.dashboard import served
from tests.support.oidc_provider import Provider, running
from tests.support.replica_process import app_of, serve
from tests.support.s3_server import S3Server

PATIENCE_SECONDS = 300.0
"""Acts are done one after the other, and who is next is chance: on a busy machine somebody may wait for minutes."""
THOUGHT_SECONDS = 0.05
"""Pause of each person between two clicks, times the number of people."""
OVERRIDDEN = ["rollout", "cool-down"]
"""Nothing rolls out on the embedded server, and each workload is changed again and again."""


@dataclass
class ClickReport:
    """What the people did, and what went wrong, in words."""

    kills: int = 0
    accepted: int = 0
    rolled_back: int = 0
    clicked_again: int = 0
    lost_logins: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)


class Replicas:
    """Two processes on two ports; each may be killed and started again."""

    def __init__(self, cluster: Scene, environ: Mapping[str, str]) -> None:
        """Not started yet."""
        self.ports = [free_port(), free_port()]
        self.settings = cluster.settings
        self._store, self._end_seconds, self._environ = cluster.store, float(cluster.end_seconds), dict(environ)
        self._processes: dict[int, BaseProcess] = {}
        self._here = ExitStack()

    def start_here(self, number: int) -> None:
        """Start one in this process, which is cheaper; it cannot be killed."""
        app = app_of(self.settings, self._store, self._end_seconds)
        self._here.enter_context(served(app, self.ports[number]))

    def start(self, number: int) -> None:
        """Start one."""
        place = (self._store.url, self._store.cluster, self._end_seconds)
        arguments = (msgspec.json.encode(self.settings), *place, self.ports[number], self._environ)
        process = get_context("spawn").Process(target=serve, args=arguments, daemon=True)
        process.start()
        self._processes[number] = process

    def await_ready(self, number: int) -> None:
        """Until it answers its probe."""
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            with suppress(requests.RequestException):
                if requests.get(f"http://127.0.0.1:{self.ports[number]}/livez", timeout=5).ok:
                    return
            time.sleep(0.05)
        raise AssertionError("a replica did not start")

    def kill(self, number: int) -> None:
        """kill -9."""
        self._processes[number].kill()
        self._processes[number].join()

    def stop(self) -> None:
        """End both."""
        self._here.close()
        for process in self._processes.values():
            process.kill()
            process.join()


@contextmanager
def balanced(ports: Sequence[int]) -> Iterator[str]:
    """The address of a balancer before these ports."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=200)
    threading.Thread(target=_accept, args=(listener, ports), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        listener.close()


def _accept(listener: socket.socket, ports: Sequence[int]) -> None:
    count = 0
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        count += 1
        order = [ports[(count + k) % len(ports)] for k in range(len(ports))]
        threading.Thread(target=_pass_on, args=(client, order), daemon=True).start()


def _pass_on(client: socket.socket, ports: Sequence[int]) -> None:
    for port in ports:
        with suppress(OSError):
            backend = socket.create_connection(("127.0.0.1", port), timeout=5)
            backend.settimeout(None)
            threading.Thread(target=_copy, args=(client, backend), daemon=True).start()
            _copy(backend, client)
            return
    client.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


class ClickingPerson:
    """Somebody who is logged in, looks, accepts and takes back, until told to stop."""

    def __init__(self, address: str, name: str, workload: WorkloadRef, report: ClickReport) -> None:
        """Not logged in yet."""
        self.name, self.workload, self.report = name, workload, report
        self.browser = Browser(address, Connection="close")
        self.clicks = 0

    def log_in(self) -> None:
        """Through the provider's form."""
        response = self.browser.log_in(self.name)
        assert response.status_code == 303, response.text

    def click(self, until: threading.Event, thought_seconds: float) -> None:
        """Look, accept, take back; again and again. What breaks is kept for the report: nobody sees a thread's end."""
        try:
            self._click(until, thought_seconds)
        except Exception as error:  # noqa: BLE001
            self.report.broken.append(f"{self.name}: {type(error).__name__}: {error}")

    def _click(self, until: threading.Event, thought_seconds: float) -> None:
        while not until.wait(thought_seconds):
            me = self._tried("GET", "/api/v1/me")
            if me.status_code != 200 or me.json()["name"] != self.name:
                self.report.lost_logins.append(f"{self.name}: {me.status_code} {me.text[:200]}")
                return
            self.clicks += 1
            body = {"workloads": [review.name_of(self.workload)], "overridden": OVERRIDDEN}
            response = self._tried("POST", "/api/v1/changes", body, f"{self.name.partition('@')[0]}-{self.clicks}")
            if response.status_code not in (200, 201):
                self.report.refused[f"{response.status_code} {response.text[:160]}"] += 1
                continue
            self.report.accepted += 1
            (change,) = response.json()["changes"]
            if self._tried("POST", f"/api/v1/changes/{change['change']}/rollback").ok:
                self.report.rolled_back += 1

    def _tried(self, method: str, path: str, body: Any = None, key: str = "") -> requests.Response:
        """Until an answer comes that is not 503: a person clicks again."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            with suppress(requests.RequestException):
                if method == "GET":
                    response = self.browser.get(path)
                else:
                    headers = {"Idempotency-Key": key} if key else {}
                    response = self.browser.post(path, json=body, headers=headers)
                if response.status_code != 503 or time.monotonic() > deadline:
                    return response
            if time.monotonic() > deadline:
                raise TimeoutError(f"{method} {path}: no answer within {PATIENCE_SECONDS:g} s")
            self.report.clicked_again += 1
            time.sleep(0.3)


def measured(folder: Path, count: int, kills: int, bucket: S3Server | None = None) -> ClickReport:
    """So many people on two replicas whose logins and ledger lie in a folder, or in a bucket of this server."""
    people = [f"user-{n:02d}@example.com" for n in range(count)]
    provider = Provider(people={name: {} for name in people})
    ledger, sessions = str(folder / "shared.db"), (folder / "sessions").as_uri()
    if bucket is not None:
        ledger, sessions = "s3://usage/ledger", "s3://usage/sessions"
    key_file = folder / "session-key"
    key_file.write_text(secrets.token_urlsafe(48))
    with acting.embedded(folder) as plain, running(provider):
        provider.signer = lambda claims: _signed(plain, provider, claims)
        replicas = Replicas(plain, bucket.environ if bucket else {})
        try:
            with balanced(replicas.ports) as address:
                place = {"sessions": sessions, "session_key_file": str(key_file), "public_url": address}
                roles = [{"role": "admin", "user": name} for name in people]
                actions = msgspec.structs.replace(plain.settings.actions, ledger=ledger)
                cluster = replace(plain, settings=msgspec.structs.replace(plain.settings, actions=actions))
                access = by_login(provider, folder, roles=roles, **place)
                replicas.settings = msgspec.structs.replace(cluster.settings, access=access)
                replicas.start(0)
                if kills > 1:
                    replicas.start(1)
                else:
                    replicas.start_here(1)
                for number in range(2):
                    replicas.await_ready(number)
                return run(cluster, replicas, address, people, kills)
        finally:
            replicas.stop()


def _signed(cluster: Scene, provider: Provider, claims: dict[str, Any]) -> str:
    """A token that the API server knows too, with every right."""
    assert cluster.server is not None
    token = provider.signed(claims)
    cluster.server.accounts[token] = Account(f"oidc:{claims['email']}", (AccessRule(("*",), ("*",), ("*",)),))
    return token


def run(cluster: Scene, replicas: Replicas, address: str, people: Sequence[str], kills: int) -> ClickReport:
    """Let people click while one replica is killed and started again, then the other; what is amiss afterwards."""
    report, until = ClickReport(), threading.Event()
    workloads = cluster.acceptable()
    before = {ref: cluster.live(ref)["metadata"]["generation"] for ref in workloads}
    clicking = [ClickingPerson(address, p, workloads[i % len(workloads)], report) for i, p in enumerate(people)]
    for person in clicking:
        person.log_in()
    with _clicks_of(clicking, until):
        for number in range(kills):
            _await_clicks(clicking, report)
            replicas.kill(number % 2)
            report.kills += 1
            _await_clicks(clicking, report)
            if number + 1 < kills:
                replicas.start(number % 2)
                replicas.await_ready(number % 2)
    _judge(cluster, before, report)
    return report


@contextmanager
def _clicks_of(people: Sequence[ClickingPerson], until: threading.Event) -> Iterator[None]:
    """They click, each in a thread, until the block ends."""
    thought_seconds = THOUGHT_SECONDS * len(people)
    threads = [threading.Thread(target=p.click, args=(until, thought_seconds), daemon=True) for p in people]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        until.set()
        for thread in threads:
            thread.join(2 * PATIENCE_SECONDS)


def _await_clicks(people: Sequence[ClickingPerson], report: ClickReport) -> None:
    """Until each has clicked once more, or somebody cannot any more, which the report says."""
    before = [person.clicks for person in people]

    def done() -> bool:
        clicked = all(p.clicks > count for p, count in zip(people, before, strict=True))
        return clicked or bool(report.broken or report.lost_logins)

    wait_for("everybody has clicked once more", done, PATIENCE_SECONDS)


def _judge(cluster: Scene, before: Mapping[WorkloadRef, int], report: ClickReport) -> None:
    """No key accepted twice, no change applied or taken back twice, no write without its row, and a whole chain."""
    ledger = open_ledger(ledger_location(cluster.settings.actions, {}), reading=True)
    rows = list(ledger.entries())
    report.doubled += [f"the chain: {why}"] if (why := ledger.verify().why) else []
    batches = Counter((_batch(row)) for row in rows if row.event == ChangeEvent.ACCEPTED.value)
    report.doubled += [f"key {key} was accepted {n} times" for key, n in batches.items() if n > 1]
    once = (ChangeEvent.APPLIED.value, ChangeEvent.ROLLBACK_ACCEPTED.value, ChangeEvent.ROLLED_BACK.value)
    events = Counter((row.event, row.subject) for row in rows if row.event in once)
    report.doubled += [f"{subject} {event} {n} times" for (event, subject), n in events.items() if n > 1]
    intents = (ChangeEvent.ACCEPTED.value, ChangeEvent.ROLLBACK_ACCEPTED.value)
    written = sum(cluster.live(ref)["metadata"]["generation"] - generation for ref, generation in before.items())
    intended = sum(row.event in intents for row in rows)
    report.doubled += [f"{written} writes for {intended} rows"] if written > intended else []


def _batch(row: LedgerRow) -> str:
    return str(msgspec.json.decode(row.body)["batch"])
