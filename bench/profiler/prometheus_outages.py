"""A server that is away for 5 or 40 s from each question of a scan on, in turn: the truth, or an error with its fix.

One pull for each question, fault and length, with the default settings; pauses leap over their time, so that hundreds
of pulls take minutes. Part of bench.profiler.prometheus_matrix.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.record import Row
from cotenant.base.store.store import Store
from cotenant_lab.synthetic import generate
from tests.support.faultproxy import FaultProxy
from tests.support.prometheus import Server
from tests.support.prometheus_matrix import SPEC, VARIANTS, Outcome, Scene, blocks
from tests.support.timer import LeapingTimer

RESTART: Final = "restart"
FAULTS: Final = {"503": "503-html", "429": "429", RESTART: ""}
"""Fault in words -> what the proxy answers; "": the server itself is ended."""
LENGTHS_SECONDS: Final = (5.0, 40.0)
REFERENCE: Final = VARIANTS[0]


class Outage:
    """A fault of the whole server that begins with the `number`-th question, from 1, and lasts by the timer's clock."""

    def __init__(self, proxy: FaultProxy, server: Server, fault: str, number: int, seconds: float) -> None:
        self.timer = LeapingTimer()
        self.questions: set[str] = set()
        self._proxy, self._server, self._fault = proxy, server, fault
        self._number, self._seconds = number, seconds
        self._ends_seconds = float("inf")
        self._turn = threading.Lock()

    def __call__(self, _count: int, query: str) -> str | None:
        """Name of the fault for this request, as a FaultProxy asks for it."""
        with self._turn:
            if query not in self.questions:
                self.questions.add(query)
                if len(self.questions) == self._number:
                    self._begin()
            away = self.timer.monotonic_seconds() < self._ends_seconds < float("inf")
            if self._fault == RESTART:
                self._start_again(away)
                return None
            return FAULTS[self._fault] if away else None

    @property
    def begun(self) -> bool:
        """Whether the question came."""
        return self._ends_seconds < float("inf")

    def _begin(self) -> None:
        self._ends_seconds = self.timer.monotonic_seconds() + self._seconds
        if self._fault == RESTART:
            self._server.stop()

    def _start_again(self, away: bool) -> None:
        if not away and self._server.process is None:
            self._server.start()
            self._proxy.target = self._server.url


def rows(folder: Path) -> Iterator[Row]:
    """A row for each fault and length."""
    cluster = generate(SPEC)
    with Server(blocks(cluster, folder, [REFERENCE])) as server, FaultProxy(server.url) as proxy:
        prometheus = Scene(cluster, proxy.url)
        for fault in FAULTS:
            for seconds in LENGTHS_SECONDS:
                stores = folder / f"{fault}-{seconds:g}"
                yield _row(fault, seconds, list(_outcomes(prometheus, proxy, server, stores, (fault, seconds))))


def table_row(row: Row) -> str:
    """A row of the page's table: how often the numbers were the same, and what the others came to."""
    what, _, _ = row.metric.partition(": the same")
    pulls = int(re.findall(r"= (\d+)", row.goal)[0])
    others = f"; {row.note.partition(',')[0]}" if row.value < pulls else ""
    return f"| {what} | the same numbers: {row.value:g} of {pulls}{others} |"


def _outcomes(
    prometheus: Scene, proxy: FaultProxy, server: Server, folder: Path, of: tuple[str, float]
) -> Iterator[Outcome]:
    """One pull for each question; the last number is that of the last question that a pull asks."""
    number = 0
    while True:
        number += 1
        outage = Outage(proxy, server, of[0], number, of[1])
        proxy.fault = outage
        outcome = prometheus.outcome(REFERENCE, Store(folder.as_uri(), f"c{number}"), outage.timer)
        if server.process is None:
            server.start()
            proxy.target = server.url
        if not outage.begun:
            return
        yield outcome


def _row(fault: str, seconds: float, outcomes: list[Outcome]) -> Row:
    complete = sum(REFERENCE.is_met(outcome) for outcome in outcomes)
    refused = [outcome for outcome in outcomes if outcome.refusal and outcome.fix]
    what = f"server restarted, back after {seconds:g} s" if fault == RESTART else f"{fault} for {seconds:g} s"
    note = f"{len(refused)} with an error and its fix, the others without loss"
    note += ": a server that never answered is not waited for" if refused else ""
    goal = f"= {len(outcomes)}, or an error with its fix"
    met = complete + len(refused) == len(outcomes)
    return Row(f"{what}, at each question in turn: the same numbers", complete, "pulls", goal, met, note)
