"""EDGE: reads the inputs of a status: the stored results, the ledger, the cluster's objects."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Final

from cotenant.base.errors import ClusterAbsent, ClusterError, ClusterForbidden, CotenantError, NoData
from cotenant.cli.status.model import TABLES, ClusterStatus, Component, InCluster, cluster_status

if TYPE_CHECKING:
    from cotenant.base.kube import KubeClient
    from cotenant.base.process.clock import Clock
    from cotenant.base.settings.load import Loaded
    from cotenant.base.store import Store
    from cotenant.settings import Settings

OWN: Final = "app.kubernetes.io/part-of=cotenant"
"""Label of everything that the chart and the manifests put into a cluster."""
COMPONENTS: Final = (
    ("/apis/apps/v1/deployments", "Deployment", "readyReplicas", "replicas"),
    ("/apis/apps/v1/daemonsets", "DaemonSet", "numberReady", "desiredNumberScheduled"),
)
"""(path, kind, field of status with the ready pods, field with the wanted ones)."""


def read_status(store: Store, settings: Settings, live: InCluster, clock: Clock) -> ClusterStatus:
    """Return the status of the store's cluster; raise NoData without results."""
    from cotenant.changes.change_ledger import ChangeLedger
    from cotenant.changes.commands.ledger_access import ledger_for_reading, marks_of
    from cotenant.changes.model.ledger_marks import mark_recommendations
    from cotenant.recommender.model.views import RECOMMENDATIONS, Overview

    overview = store.read_document("overview", Overview)
    if overview is None:
        # The error before the first analysis; where a recorder has begun, with all that it says of itself.
        from cotenant.profiler.recorder.status import STATUS_DOCUMENT, RecorderStatus

        recording = store.read_document(STATUS_DOCUMENT, RecorderStatus)
        state, fix = "", "Scan first: cotenant scan --prometheus URL."
        if recording is not None:
            state, fix = "; ".join(recording.lines(clock.now_seconds())), "Analyse the recorded history: cotenant scan."
        absent = f"the store has no results of cluster {store.cluster} yet"
        raise NoData(f"{absent}: {state}" if recording else absent, fix=fix)
    tables = {schema.name: store.relation(schema) for schema in TABLES}
    with ledger_for_reading(settings) as ledger:
        statuses = list(ChangeLedger(ledger, clock, "").statuses().values())
        marks = marks_of(settings, ledger, clock, overview.time_seconds)
    tables[RECOMMENDATIONS.name] = mark_recommendations(tables[RECOMMENDATIONS.name], marks)
    return cluster_status(overview, tables, statuses, live, clock.now_seconds())


def read_cluster(loaded: Loaded[Settings], cluster: str) -> InCluster:
    """Return the components that run in the cluster, and its plans, or why they are not known.

    They are not known if the kubeconfig is of another cluster than the results, unless the settings or an option name
    the context: components of another cluster would mislead. Raises ClusterError if an option names a kubeconfig or
    context that does not exist.
    """
    from cotenant.base.kube import connect
    from cotenant.base.kube.auth import IN_CLUSTER

    is_named = loaded.context_by_flag
    if not (is_named or loaded.reaches_cluster):
        return InCluster(unknown=f"the settings name no kubeconfig context for cluster {cluster}; give --context")
    try:
        client = connect(loaded.settings.kube)
    except ClusterError as error:
        if is_named:
            raise
        return InCluster(unknown=error.message)
    with closing(client):
        present = client.access.cluster
        if not (is_named or loaded.cluster is not None) and present not in (cluster, IN_CLUSTER):
            return InCluster(
                unknown=f"the kubeconfig context belongs to cluster {present}, the results to {cluster}; give --context"
            )
        try:
            # The Deployments and DaemonSets of cotenant, by name.
            components_found = [
                Component(
                    body["metadata"]["name"],
                    kind,
                    int(body.get("status", {}).get(ready, 0)),
                    int(body.get("status" if kind == "DaemonSet" else "spec", {}).get(wanted_field, 0)),
                )
                for path, kind, ready, wanted_field in COMPONENTS
                for body in client.list(path, labelSelector=OWN)
            ]
            components = tuple(sorted(components_found, key=lambda part: part.name))
        except CotenantError as error:
            return InCluster(unknown=error.message, failed=True)
        return _with_plans(client, components)


def _with_plans(client: KubeClient, components: tuple[Component, ...]) -> InCluster:
    """Return the components with the plans by phase; a cluster without that kind has none."""
    from cotenant.scheduler_ext.reservations.model.plan_states import counts
    from cotenant.scheduler_ext.reservations.service.plans import plans

    try:
        listed = plans(client)
        return InCluster(components, counts(listed.plans), plans_left_out=listed.note)
    except ClusterAbsent:
        return InCluster(components, counts(()))
    except CotenantError as error:
        refused = isinstance(error, ClusterForbidden)  # whoever has the role of a reader alone sees no plans
        return InCluster(components, plans_unknown=error.message, failed=not refused)
