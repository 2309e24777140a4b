"""EDGE: checks of the store: whether it is writable, its free space, and its history."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cotenant.base import measures
from cotenant.base.errors import CotenantError, StoreError
from cotenant.base.kubernetes.quantity import human_bytes
from cotenant.base.process.clock import Clock
from cotenant.base.text import counted, share
from cotenant.base.usage.usage import DAY_SECONDS, HOUR_SECONDS
from cotenant.cli.cluster.probes.outcome import Probe, ProbeFinding, ProbeOutcome, ProbeState

if TYPE_CHECKING:
    from cotenant.profiler.recorder.status import RecorderStatus

LITTLE_FREE_BYTES: Final = 1 << 30
OLD_SECONDS: Final = DAY_SECONDS
"""Age from which on `cotenant doctor` gives a hint about a history; the dashboard marks old data much earlier."""


def probes(url: str, clock: Clock) -> Iterator[ProbeFinding]:
    """Yield findings about the store, about the history of each cluster in it, and about recorders."""
    folder = local_folder(url)
    if folder is None:
        finding = Probe("store", f"list {url}", required=True).run(lambda: probe_remote_store(url))
    else:
        finding = Probe("store", f"write and remove a file in {folder}", required=True).run(lambda: writable(folder))
    yield finding
    if not finding.fatal:
        yield Probe("history", f"the clusters stored at {url}").run(lambda: history(url, clock.now_seconds()))
        yield Probe("recorder", f"what recorders wrote to {url}").run(lambda: recordings(url, clock.now_seconds()))


def local_folder(url: str) -> Path | None:
    """Return the folder of a file:// URL or plain path, as fsspec finds it; None for any other protocol."""
    path = url.removeprefix("file:").removeprefix("//") if url.startswith("file:") else url
    return None if "://" in path else Path(path).expanduser().absolute()


def writable(folder: Path) -> ProbeOutcome:
    """Check that a file can be written to the store's present or future folder; the file is removed again."""
    place = next(p for p in (folder, *folder.absolute().parents) if p.exists())
    try:
        with tempfile.NamedTemporaryFile(dir=place, prefix=".cotenant-doctor-"):
            free = shutil.disk_usage(place).free
    except OSError as error:
        fix = "Choose another folder by setting store.url, or change its owner."
        raise StoreError(f"{place} cannot be written: {error.strerror}", fix=fix) from error
    detail = f"{folder} {'is' if place == folder else 'will be made and is'} writable, {human_bytes(free)} free"
    if free < LITTLE_FREE_BYTES:
        fix = "Free disk space: 1,000 workloads over 14 days need some hundred MiB."
        return ProbeOutcome(ProbeState.WARNING, detail, fix)
    return ProbeOutcome(ProbeState.OK, detail)


def probe_remote_store(url: str) -> ProbeOutcome:
    """Check that a remote store can be listed; no write is tried, since an object may cost or be kept for ever."""
    from cotenant.base.store import Store

    return ProbeOutcome(
        ProbeState.OK, f"{url} answers and has {counted(len(Store.clusters(url)), 'cluster')}; writing was not tried"
    )


def history(url: str, now_seconds: float) -> ProbeOutcome:
    """Check each cluster's history: its length and age, unreadable parts, and defects of the last scan."""
    from cotenant.base.store import Store

    names = Store.clusters(url)
    if not names:
        fix = "Run cotenant scan --prometheus URL, or cotenant demo."
        return ProbeOutcome(ProbeState.SKIPPED, "no cluster is stored yet", fix)
    described = [describe(Store(url, name), now_seconds) for name in names]
    troubled = any(trouble for _, trouble in described)
    fix = "Run cotenant scan again: it reports what it cannot read from the source." if troubled else ""
    return ProbeOutcome(
        ProbeState.WARNING if troubled else ProbeState.OK, "; ".join(line for line, _ in described), fix
    )


def describe(store: object, now_seconds: float) -> tuple[str, bool]:
    """Return a text about one cluster's stored history, and whether something is wrong with it."""
    from cotenant.base.store import Store
    from cotenant.profiler.history import open_holes
    from cotenant.recommender.model.views import Overview

    assert isinstance(store, Store)
    span = store.usage_span()
    if span is None:
        return f"{store.cluster}: no usage", True
    age, length = measures.age_seconds(now_seconds, span[1]), measures.length_seconds(*span)
    parts = [f"{store.cluster}: {length / DAY_SECONDS:.1f} days of usage, newest sample {age / HOUR_SECONDS:.1f} h ago"]
    holes = open_holes(store)
    if holes:
        parts.append(f"{counted(len(holes), 'unreadable day')} set aside")
    overview = store.read_document("overview", Overview)
    if overview and isfinite(overview.coverage):
        parts.append(f"{share(overview.coverage)} of samples present")
    record = next(iter(store.read_quality()[-1:]), None)
    if record:
        parts.append(f"from {record.source}")
        parts += [f"{count} x {defect}" for defect, count in record.defects.items() if count]
    return ", ".join(parts), bool(holes) or age > OLD_SECONDS


def running_recorders(url: str, now_seconds: float) -> dict[str, RecorderStatus]:
    """Return the status of each recorder that writes into the store now; empty if the store cannot be read."""
    try:
        recorders = _recorder_statuses(url)
    except CotenantError:
        return {}
    return {name: status for name, status in recorders.items() if not status.is_silent(now_seconds)}


def _recorder_statuses(url: str) -> dict[str, RecorderStatus]:
    from cotenant.base.store import Store
    from cotenant.profiler.recorder.status import STATUS_DOCUMENT, RecorderStatus

    read = {name: Store(url, name).read_document(STATUS_DOCUMENT, RecorderStatus) for name in Store.clusters(url)}
    return {name: status for name, status in read.items() if status is not None}


def recordings(url: str, now_seconds: float) -> ProbeOutcome:
    """Report each recorded cluster: since when and from which sources it is recorded, and what is missing.

    The outcome is WARNING if a recorder is silent or cannot read some nodes or pods, SKIPPED if none has ever run.
    """
    from cotenant.profiler.recorder.status import NodeSource

    recorders = _recorder_statuses(url)
    if not recorders:
        fix = "Without a Prometheus, start a recorder: cotenant serve recorder."
        return ProbeOutcome(ProbeState.SKIPPED, "no cluster is recorded", fix)
    sentence = "; ".join(f"{name}: {'; '.join(status.lines(now_seconds))}" for name, status in recorders.items())
    silent = [name for name, status in recorders.items() if status.is_silent(now_seconds)]
    if silent:
        fix = f"Start the recorder again, or look at its log: cotenant serve recorder --cluster {silent[0]}"
        return ProbeOutcome(ProbeState.WARNING, sentence, fix)
    unread = [name for name, status in recorders.items() if status.nodes.get(NodeSource.NONE) or status.left_out]
    fix = "Follow the fix of each reason above; times without measurements remain gaps." if unread else ""
    return ProbeOutcome(ProbeState.WARNING if unread else ProbeState.OK, sentence, fix)
