"""Health of the data and the process, for both the health page and /api/v1/health. Pure.

It has plain rows and texts only; ages are relative to one given time, so that page and API agree.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from cotenant.base.text import counted
from cotenant.base.usage.quality import DEFECT_SENTENCES, Defect, QualityRecord
from cotenant.dashboard.sources.source import Upkeep
from cotenant.recommender.model.views import Overview

SHOWN: Final = ("cotenant", "dash", "dash-ag-grid", "fastapi", "numpy", "pyarrow")
PULLS_SHOWN: Final = 10
PULL: Final = "Pull of usage"
"""Name of the job that reads the source."""


@dataclass(frozen=True, slots=True)
class UpkeepJob:
    """One kind of job, such as pull or analysis: Unix time of its last success (None: never), its age in seconds."""

    name: str
    last_seconds: int | None
    age_seconds: float | None
    words: str
    """The result of the last run, as text."""


@dataclass(frozen=True, slots=True)
class Status:
    """Everything on the health page; times in Unix seconds."""

    time_seconds: float
    cluster: str
    jobs: list[UpkeepJob]
    pulls: list[QualityRecord]
    """The last pulls of the metrics source, the newest first."""
    lost_days: list[tuple[str, int, str]]
    """(signal, start of the UTC day, file that was set aside)."""
    settings_digest: str
    strategy: str
    coverage: float | None
    notes: list[str]
    versions: dict[str, str]
    permissions: str = ""
    recording: list[str] = field(default_factory=list)
    """Sentences about the recorder's state; empty without a recorder."""
    sentences: dict[str, str] = field(default_factory=lambda: {d.value: s for d, s in DEFECT_SENTENCES.items()})


ACTS: Final = "Changes can be made here. The table shows whose rights are used, and which of them the cluster grants."
READS: Final = "The dashboard reads only the store: it has no rights in the cluster."


def status(overview: Overview | None, upkeep: Upkeep, now_seconds: float, *, acts: bool = False) -> Status:
    """Return the health at `now_seconds`; `acts` says whether the dashboard has a change service."""
    return Status(
        permissions=ACTS if acts else READS,
        time_seconds=now_seconds,
        cluster=overview.cluster if overview else "",
        jobs=_jobs(overview, upkeep.pulls, now_seconds),
        pulls=list(reversed(upkeep.pulls[-PULLS_SHOWN:])),
        lost_days=list(upkeep.lost),
        settings_digest=overview.settings_digest if overview else "",
        strategy=overview.strategy if overview else "",
        coverage=overview.coverage if overview and overview.coverage == overview.coverage else None,  # NaN = unknown
        notes=list(overview.notes) if overview else [],
        versions=versions(),
        recording=upkeep.recording.lines(now_seconds) if upkeep.recording else [],
    )


def _jobs(overview: Overview | None, pulls: Sequence[QualityRecord], now_seconds: float) -> list[UpkeepJob]:
    def job(name: str, last: int | None, detail: str) -> UpkeepJob:
        return UpkeepJob(name, last, None if last is None else max(0.0, now_seconds - last), detail)

    complete_pulls = [p for p in pulls if not p.defects.get(Defect.QUERY_FAILED)]
    last, pulled = complete_pulls[-1] if complete_pulls else None, "every pull had a failed query"
    if last:
        pulled = f"{last.samples:,} samples from {last.source}"
    analysed = "no results yet"
    if overview:
        analysed = f"strategy {overview.strategy}, {counted(overview.containers, 'container')}"
    return [
        job(PULL, last.time_seconds if last else None, pulled),
        job("Newest sample", overview.time_seconds if overview else None, "end of the history shown"),
        job("Analysis", overview.computed_seconds if overview else None, analysed),
    ]


def versions() -> dict[str, str]:
    """Return the versions of the packages in this process: {package: version}."""
    by_package = {"python": platform.python_version()}
    for name in SHOWN:
        try:
            by_package[name] = version(name)
        except PackageNotFoundError:
            by_package[name] = "not installed"
    return by_package
