"""EDGE: access of `recs` and `audit` to the ledger and the cluster."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from cotenant.base.commands.output import message
from cotenant.base.errors import ClusterError, NoData, UsageError
from cotenant.base.settings.sections import KubeSettings
from cotenant.changes.model.settings import ActionSettings, anchor_namespace

if TYPE_CHECKING:
    from cotenant.base.ledger.ledger import Ledger
    from cotenant.base.process.clock import Clock
    from cotenant.base.settings.base import SettingSections
    from cotenant.changes.accept import Actions
    from cotenant.changes.model.change import ChangeStatus
    from cotenant.changes.model.ledger_marks import LedgerMarks
    from cotenant.recommender.model.recommendation import Recommendation


PATIENCE_SECONDS: Final = 60.0
"""How long a command waits for another one, or for the dashboard, to release the ledger."""


@contextmanager
def open_actions(settings: SettingSections, what: str = "a command") -> Iterator[Actions]:
    """Yield actions on the configured cluster, with the ledger locked; close the ledger afterwards.

    Raise StoreBusy if another process keeps the ledger locked for too long.
    """
    from cotenant.base.kube import connect
    from cotenant.base.ledger.bucket_ledger import ledger_turn
    from cotenant.changes.accept import Actions
    from cotenant.changes.change_ledger import ChangeLedger, anchor
    from cotenant.changes.live_context import who
    from cotenant.changes.model.settings import ledger_location

    client = connect(settings.section(KubeSettings))
    person = who(client)
    place = ledger_location(settings.section(ActionSettings), os.environ)
    turn = ledger_turn(place, f"{what} of {person.name}", PATIENCE_SECONDS)
    with turn, closing(client), closing(open_ledger(settings)) as ledger:
        change_ledger = ChangeLedger(ledger, client.clock(), person.name)
        change_ledger.cluster = client.access.cluster
        actions = Actions(client, change_ledger, settings.section(ActionSettings), person)
        namespace = anchor_namespace(settings)
        if namespace:
            try:
                anchor(client, ledger, namespace)
            except ClusterError as error:
                namespace = ""  # the acts go on without a head in the cluster
                message(f"the ledger's head is not stored in the cluster: {error}", style="yellow")
                if error.fix:
                    message(f"fix: {error.fix}")
        yield actions.having(anchor_namespace=namespace)


def open_ledger(settings: SettingSections, reading: bool = False) -> Ledger:
    """Return the configured ledger. If it does not exist, create it, unless `reading` is true."""
    from cotenant.base.ledger import bucket_ledger
    from cotenant.changes.model.settings import ledger_location

    return bucket_ledger.open_ledger(ledger_location(settings.section(ActionSettings), os.environ), reading=reading)


def clock_of_ledger(settings: SettingSections, ledger: Ledger, *, reaches_cluster: bool = True) -> Clock:
    """Return the clock that the ledger's timestamps follow, so that cool-downs and snoozes end at the shown times.

    It is the API server's clock if `reaches_cluster` (the kubeconfig is of the ledger's cluster) and the ledger is not
    empty, else this machine's.
    """
    from cotenant.base.kube import clock_of_results

    is_empty = next(iter(ledger.entries()), None) is None
    return clock_of_results(settings.section(KubeSettings), reaches_cluster=reaches_cluster and not is_empty)


@contextmanager
def ledger_for_reading(settings: SettingSections) -> Iterator[Ledger]:
    """Yield the configured ledger for reading; do not create it."""
    with closing(open_ledger(settings, reading=True)) as ledger:
        yield ledger


def marks_of(settings: SettingSections, ledger: Ledger, clock: Clock, scanned_seconds: float) -> LedgerMarks:
    """Return the ledger's facts about workloads: hidden recommendations, cool-downs, harmful trials, and applied steps.

    Steps that were applied after `scanned_seconds`, the time of the scan, count as taken.
    """
    from cotenant.base.usage.usage import HOUR_SECONDS
    from cotenant.changes.change_ledger import ChangeLedger
    from cotenant.changes.decide.checks.trials import taken_of, trials_of
    from cotenant.changes.model.change import cool_downs
    from cotenant.changes.model.ledger_marks import LedgerMarks
    from cotenant.changes.snooze import postponed_recommendations

    now, wait = clock.now_seconds(), settings.section(ActionSettings).guardrails.cool_down_hours * HOUR_SECONDS
    statuses = ChangeLedger(ledger, clock, "").statuses().values()
    postponed = postponed_recommendations(ledger, now)
    taken = taken_of(statuses, scanned_seconds)
    return LedgerMarks.of(postponed, cool_downs(statuses, wait, now), trials_of(statuses), now, taken)


def find_change(statuses: dict[str, ChangeStatus], id_: str) -> ChangeStatus:
    """Return the change whose id begins with `id_`; raise UsageError if there is none, or more than one."""
    matches = [s for key, s in statuses.items() if key.startswith(id_)]
    if len(matches) != 1:
        raise UsageError(f"{len(matches)} change ids begin with {id_!r}", fix="`cotenant recs changes` lists all ids.")
    return matches[0]


def workload_recommendations(settings: SettingSections, cluster: str | None, names: list[str]) -> list[Recommendation]:
    """Return the stored recommendations of these workloads; raise NoData if `names` is empty or a workload has none."""
    from cotenant.base.commands.results import open_store
    from cotenant.recommender.stored_recommendations import Explanations

    explanations = Explanations(open_store(settings, cluster))
    recommendations = [r for name in names for r in explanations.of_workload(name)]
    if not recommendations:
        raise NoData("no recommendations are stored for these workloads", fix="Scan first: cotenant scan.")
    return recommendations


def proposed_gpu_shares(settings: SettingSections, cluster: str | None, names: list[str]) -> list[Recommendation]:
    """Return the GPU shares proposed for the named workloads; raise NoData if a workload has none."""
    from cotenant.base.commands.results import open_store
    from cotenant.changes.access.configured_service import gpu_shares_of

    workloads = {r.container.workload for r in workload_recommendations(settings, cluster, names)}
    shares = list(gpu_shares_of(open_store(settings, cluster))(workloads))
    without = workloads - {share.container.workload for share in shares}
    if without:
        raise NoData(
            f"no GPU share is proposed for {min(without)}",
            fix="cotenant get findings --what oversized-gpu lists workloads with a proposed share.",
        )
    return shares
