"""EDGE: reads the cluster's queues once with the caller's rights, and explains why a pod does not wait."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

import typer

from cotenant.base.commands.output import message
from cotenant.base.commands.session import EXIT_PARTIAL, CliSession
from cotenant.base.identity import PodName
from cotenant.base.settings.sections import KubeSettings
from cotenant.scheduler_ext.queues.model.settings import QueueSettings

if TYPE_CHECKING:
    from cotenant.base.kube import KubeClient
    from cotenant.base.settings.base import SettingSections
    from cotenant.scheduler_ext.queues.model.report import QueueReport
    from cotenant.scheduler_ext.queues.view import QueueView

NO_QUOTAS: Final = (
    "the cluster has no ElasticQuota. Begin with an example, which docs/queues.md explains:\n"
    "  kubectl apply -f deploy/examples/elasticquota.yaml"
)


@dataclass(frozen=True)
class LiveQueues:
    """The queues as read once: view, report, the requested pod as JSON, and cotenant's gates that nobody removes."""

    view: QueueView
    report: QueueReport
    pod: Mapping[str, Any] = field(default_factory=dict)
    unserved: frozenset[str] = frozenset()
    """cotenant's scheduling gates that no manager promises to remove now."""

    @property
    def unserved_gates_of_pod(self) -> tuple[str, ...]:
        """Gates of the requested pod that no manager removes now."""
        from cotenant.scheduler_ext.reservations.pod_gate import gates_of

        return tuple(gate for gate in gates_of(self.pod) if gate in self.unserved)

    def problems_of_pod(self) -> QueueReport:
        """Return the report with only those problems that concern the pod's gang, gang group or quotas."""
        from cotenant.base.kubernetes.quota_tree import QuotaTree

        place = "/".join(str((self.pod.get("metadata") or {}).get(key)) for key in ("namespace", "name"))
        own = next((pod for pod in self.view.pods if pod.place == place), None)
        gang = self.view.gangs.get(own.gang) if own is not None else None
        group = {own.gang, *(gang.group if gang is not None else ())} - {""} if own is not None else set()
        names = {f"pods/{place}", *(f"podgroups/{key}" for key in group)}
        names |= {f"pods/{pod.place}" for pod in self.view.pods if pod.gang in group}
        if own is not None and (quota := self.view.quotas.get(own.quota)) is not None:
            tree = QuotaTree(self.view.quotas)
            quotas = (quota, *(self.view.quotas[n] for n in tree.ancestors(quota) if n in self.view.quotas))
            names |= {f"elasticquotas/{name}" for q in quotas for name in (q.name, f"{q.namespace}/{q.name}")}
        problems_kept = [problem for problem in self.report.problems if problem[0] in names or "/" not in problem[0]]
        return replace(self.report, problems=tuple(problems_kept))

    def quotas_of(self, namespaces: Collection[str]) -> frozenset[str]:
        """Return the names of the quotas against which pods of these namespaces count, and of all their parents."""
        from cotenant.base.kubernetes.quota_tree import QuotaTree

        tree = QuotaTree(self.view.quotas)
        names = {pod.quota for pod in self.view.pods if pod.namespace in namespaces}
        bound = [tree.of_pod(namespace, {}) for namespace in namespaces]
        names |= {quota.name for quota in bound if quota is not None}
        quotas = [self.view.quotas[name] for name in names if name in self.view.quotas]
        return frozenset(names) | {above for quota in quotas for above in tree.ancestors(quota)}

    def why_not_waiting(self) -> str:
        """Return a sentence on why the requested pod waits for no quota and no gang."""
        from cotenant.base.kubernetes.quota_tree import QuotaTree
        from cotenant.scheduler_ext.queues.model.explanation import gate_sentences
        from cotenant.scheduler_ext.reservations.pod_gate import MISSPELT, OUR_GATES, gates_of, misspelt

        meta, spec = self.pod.get("metadata") or {}, self.pod.get("spec") or {}
        name, gates = f"{meta.get('namespace')}/{meta.get('name')}", gates_of(self.pod)
        if spec.get("nodeName"):
            return f"{name} is on node {spec['nodeName']}: the pod waits for no quota and no gang"
        if gates:
            ours = [gate for gate in gates if gate in OUR_GATES]
            unknown = misspelt(gates)
            others = ", ".join(gate for gate in gates if gate not in (*OUR_GATES, *unknown))
            texts_by_gate = gate_sentences(self.report, meta, self.unserved)
            sentences = [
                *(f"{gate}: {texts_by_gate[gate]}" for gate in ours),
                *(f"{gate}: {MISSPELT}" for gate in unknown),
                *([f"{others}: not a gate of cotenant"] if others else []),
            ]
            return f"{name} has scheduling gates. {'; '.join(sentences)}"
        quota = QuotaTree(self.view.quotas).of_pod(str(meta.get("namespace")), meta.get("labels") or {})
        if quota is None:
            return f"{name} has no gate and counts against no quota; `cotenant explain pod {name}` checks the nodes"
        return f"{name} has no gate: quota {quota.name} admits it; `cotenant explain pod {name}` checks the nodes"


def open_queues(
    session: CliSession, kubeconfig: str | None, context: str | None, pod: PodName | None = None
) -> LiveQueues:
    """Read the queues and, if given, a pod; raise NoData if the pod does not exist."""
    from cotenant.base.kube import connect
    from cotenant.scheduler_ext.extender.watch.cluster_reader import pod_of

    settings = session.load({"kube.kubeconfig": kubeconfig, "kube.context": context}).settings
    with closing(connect(settings.section(KubeSettings))) as client:
        body = pod_of(client, *pod) if pod else {}
        now_seconds = client.clock().now_seconds()
        view, report = read_report(client, settings, now_seconds)
        unserved = unserved_gates(client, now_seconds) if pod else frozenset()
    return LiveQueues(view, report, body, unserved)


def unserved_gates(client: KubeClient, now_seconds: float) -> frozenset[str]:
    """Return cotenant's gates that no manager promises to remove now; empty if the promise cannot be read."""
    from cotenant.base.errors import ClusterAbsent, ClusterError
    from cotenant.scheduler_ext.reservations.guard import ADDRESS, is_promised, served_until

    try:
        guard = client.get(ADDRESS.path)
    except ClusterAbsent:
        guard = None
    except ClusterError:
        return frozenset()
    return frozenset(gate for gate, end in served_until(guard).items() if not is_promised(end, now_seconds))


def read_report(client: KubeClient, settings: SettingSections, now_seconds: float) -> tuple[QueueView, QueueReport]:
    """Return the queue view and its report; raise ClusterForbidden, which names the right, if one is missing."""
    from cotenant.scheduler_ext.queues.quota_report import queue_report
    from cotenant.scheduler_ext.queues.service.queue_view import read_view

    own = settings.section(QueueSettings)
    return read_view(client, settings, now_seconds, lambda view: (view, queue_report(view, own)))


def finish(report: QueueReport) -> None:
    """Print the report's problems; exit with EXIT_PARTIAL if there are any."""
    for name, problem in report.problems:
        message(f"{name}: {problem}")
    if report.problems:
        raise typer.Exit(EXIT_PARTIAL)
