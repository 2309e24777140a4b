"""EDGE: stored recommendations with all their details, by name, for `cotenant explain` and patches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from cotenant.base.allocation.gpu_share import GpuShareProposal
from cotenant.base.errors import NoData, UsageError
from cotenant.base.identity import ContainerRef, WorkloadRef, folder_part
from cotenant.base.store import Store
from cotenant.base.table import Table
from cotenant.base.text import ask_for_closest
from cotenant.recommender.model.finding import FindingKind
from cotenant.recommender.model.recommendation import Recommendation, Restart
from cotenant.recommender.model.views import RECOMMENDATIONS, WORKLOADS


def document_name(namespace: str) -> str:
    """Return the name of the document that contains a namespace's recommendations."""
    return f"explain@{folder_part(namespace)}"


def write(store: Store, recommendations: Iterable[Recommendation]) -> None:
    """Write one document for each namespace that has recommendations, and remove those of all other namespaces."""
    by_namespace: dict[str, list[Recommendation]] = defaultdict(list)
    for recommendation in recommendations:
        by_namespace[recommendation.container.workload.namespace].append(recommendation)
    for namespace, of_namespace in by_namespace.items():
        store.write_document(document_name(namespace), of_namespace)
    store.remove_others({document_name(namespace) for namespace in by_namespace}, document_name(""))


def recommendations_of(store: Store) -> Callable[[str], list[Recommendation]]:
    """Return a function that reads the stored recommendations of a namespace; it returns [] if there are none."""
    return lambda namespace: store.read_document(document_name(namespace), list[Recommendation]) or []


def gpu_shares(store: Store, findings: Table, workloads: Collection[WorkloadRef] | None = None) -> list[Recommendation]:
    """Return the GPU shares proposed in rows of the FINDINGS table, each as a recommendation for GPUs only.

    `workloads` restricts the result to these workloads; None means all.
    """
    explanations = Explanations(store)
    shares = []
    for row in findings.rows():
        workload = WorkloadRef(row["namespace"], row["kind"], row["workload"])
        if row["finding"] != FindingKind.OVERSIZED_GPU or (workloads is not None and workload not in workloads):
            continue
        ref = ContainerRef(workload, row["container"])
        stored = next((r for r in explanations.of_namespace(row["namespace"]) if r.container == ref), None)
        if stored is not None:
            about_gpus = replace(
                stored,
                strategy=FindingKind.OVERSIZED_GPU.value,
                values=(),
                notes=(),
                queries=(),
                backtest=None,
                trust=None,
                restart=Restart.ROLLOUT,
                monthly_saving=row["saving_month"],
                monthly_savings={},
                heap=None,
                gpu=GpuShareProposal.parse(row["proposal"]),
            )
            shares.append(about_gpus)
    return shares


def requested_millicores(store: Store) -> int:
    """Return the CPU that all workloads of the stored results request, in millicores; 0 without results."""
    try:
        rows = store.read_table(WORKLOADS).rows()
    except NoData:
        return 0
    return sum(int(row["cpu_request"] or 0) for row in rows)


class Explanations:
    """Reader of stored recommendations, which reads each namespace at most once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._read: dict[str, list[Recommendation]] = {}

    def of_namespace(self, namespace: str) -> list[Recommendation]:
        """Return all recommendations of a namespace; empty if there are none."""
        if namespace not in self._read:
            stored = self._store.read_document(document_name(namespace), list[Recommendation])
            self._read[namespace] = stored or []
        return self._read[namespace]

    def of_workload(self, text: str) -> list[Recommendation]:
        """Return the recommendations of a workload, named as NAMESPACE/KIND/NAME, NAMESPACE/NAME or NAME.

        Raise UsageError for another form, and for a name that several workloads have, which it lists. Raise NoData with
        the nearest name if there are no recommendations.
        """
        if text and "/" not in text:
            columns = self._store.read_table(RECOMMENDATIONS).columns
            refs = map(WorkloadRef, *(columns[name].tolist() for name in ("namespace", "kind", "workload")))
            text = str(WorkloadRef.find_named(text, refs))
        parts = text.split("/")
        if len(parts) not in (2, 3) or not all(parts):
            raise UsageError(f"{text!r} is not NAMESPACE/KIND/NAME", fix="Write a name like shop/Deployment/checkout.")
        namespace, name, kind = parts[0], parts[-1], parts[1].lower() if len(parts) == 3 else ""
        of_that_name = [r for r in self.of_namespace(namespace) if r.container.workload.name == name]
        matches = [r for r in of_that_name if kind in ("", r.container.workload.kind.lower())]
        kinds = sorted({r.container.workload.kind for r in matches})
        if len(kinds) > 1:
            fix = f"Write {namespace}/{kinds[0]}/{name}."
            raise UsageError(f"several workloads are named {text}, of kinds {', '.join(kinds)}", fix=fix)
        if not matches:
            names = {str(r.container.workload) for r in self.of_namespace(namespace)}
            fix = f"Namespace {namespace} has no recommendations; `cotenant recs list` shows all that exist."
            if names:
                fix = ask_for_closest(name, names) or "Run cotenant scan --offline -o csv for workloads' names."
            raise NoData(f"no recommendation for {text}", fix=fix)
        return matches
