"""By what a change is judged, kept with the verdict: on an API server, and asked of a real Prometheus."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cotenant.base.identity import WorkloadRef
from cotenant.base.json_documents.difference import escape_pointer_key
from cotenant.base.kubernetes.protocol import ANALYSIS_GROUP
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.process.clock import SystemClock
from cotenant.base.resource import Resource
from cotenant.changes.accept import AcceptanceTerms, ActionParts, Actions
from cotenant.changes.access.configured_service import recommended_of
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.decide.field_changes import address_of
from cotenant.changes.decide.regression_check import Compared, Measure, Objective
from cotenant.changes.live_context import who
from cotenant.changes.model.annotated_resources import LATENCY_ANNOTATION
from cotenant.changes.model.change import Change, ChangeState, ChangeStatus
from cotenant.changes.model.judgement import ChangeVerdict, RuleVerdict
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.soak.reconcile import verify
from cotenant.changes.soak.usage_comparison import PrometheusComparison
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.settings import PrometheusSettings
from cotenant.recommender.model.recommendation import object_name
from tests.cluster.crds import install_crd
from tests.contract.target import embedded_api
from tests.support import acting
from tests.support.prometheus import Server, blocks_from

pytestmark = pytest.mark.server

BEGUN = 1_700_000_000 - 1_700_000_000 % 60
SPAN = 1800
P99 = 'max(app_p99_seconds{namespace="$namespace",pod=~"$pods"})'


class Judged:
    """One applied change of a workload on the embedded server, judged with measures of ours."""

    def __init__(self, cluster: acting.Scene, folder: Path, **settings: Any) -> None:
        self.cluster = cluster
        self.client = cluster.client
        self.ledger = Ledger(folder / "judged.db")
        self.workload = cluster.acceptable()[0]
        self.compared: list[Compared] = []
        self.asked: list[str] = []
        journal = ChangeLedger(self.ledger, SystemClock(), "ann")
        merged = msgspec.structs.replace(acting.ACTIONS, **settings)
        parts = ActionParts(compare=self._compare)
        self.actions = Actions(self.client, journal, merged, who(self.client), parts)
        self.accept()

    def accept(self) -> None:
        """The change, rolled out."""
        recommendations = recommended_of(self.cluster.store)([self.workload])
        terms = AcceptanceTerms(overridden=("cool-down", "tried-before"))
        (self.status,) = self.actions.accept(self.actions.review(recommendations), terms)
        acting.settle_rollouts(self.cluster)

    def _compare(self, _change: Change, _begun: float, _now: float, objectives: Sequence[Objective]) -> list[Compared]:
        self.asked.append(
            next((objective.query for objective in objectives if objective.measure is Measure.LATENCY), "")
        )
        return self.compared

    def verify(self) -> ChangeStatus:
        self.status = verify(self.actions, self.status)
        return self.status

    @property
    def verdicts(self) -> list[ChangeVerdict]:
        """What the ledger's rows about the change hold of judgements."""
        bodies = [msgspec.json.decode(row.body) for row in self.ledger.entries(self.status.change.id)]
        return [msgspec.convert(body["judged"], ChangeVerdict) for body in bodies if "judged" in body]

    def regressed(self) -> dict[str, Any] | None:
        """The condition of the workload's Recommendation."""
        path = f"/apis/{ANALYSIS_GROUP}/namespaces/{self.workload.namespace}/recommendations"
        document = self.client.get(f"{path}/{object_name(self.workload)}") or {}
        conditions = (document.get("status") or {}).get("conditions") or []
        return next((c for c in conditions if c["type"] == "Regressed"), None)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> acting.Prepared:
    return acting.prepared(tmp_path_factory.mktemp("store"))


@pytest.fixture
def cluster(tmp_path: Path, prepared: acting.Prepared) -> Iterator[acting.Scene]:
    with acting.embedded(tmp_path, prepared) as embedded:
        yield embedded


def recommendation(cluster: acting.Scene, workload: WorkloadRef) -> None:
    """The object as a manager would have made it."""
    assert cluster.server is not None
    api = embedded_api(cluster.server)
    install_crd(api, "recommendations.analysis.koordinator.sh")
    head = {"apiVersion": ANALYSIS_GROUP, "kind": "Recommendation", "metadata": {"name": object_name(workload)}}
    target = {"type": "workload", "workload": {"apiVersion": "apps/v1", "kind": workload.kind, "name": workload.name}}
    path = f"/apis/{ANALYSIS_GROUP}/namespaces/{workload.namespace}/recommendations"
    api.create(path, {**head, "spec": {"target": target}})


def test_the_verdict_keeps_every_rule_with_its_numbers(cluster: acting.Scene, tmp_path: Path) -> None:
    judged = Judged(cluster, tmp_path)
    judged.compared = [Compared(Measure.THROTTLED, 0.05, 0.1), Compared(Measure.PRESSURE, None, None)]
    assert judged.verify().state is ChangeState.VERIFIED
    (change_verdict,) = judged.verdicts
    by_rule = {rule.rule: (rule.verdict, rule.before, rule.after, rule.most) for rule in change_verdict.rules}
    assert (
        by_rule["OOM kills"] == by_rule["restarts"] == by_rule["missing replicas"] == (RuleVerdict.KEPT, None, 0.0, 0.0)
    )
    # 5 % before and 10 points of rise allowed: up to 15 %.
    *throttled, most = by_rule[Measure.THROTTLED]
    assert throttled == [RuleVerdict.KEPT, 0.05, 0.1] and most == pytest.approx(0.15)
    assert by_rule[Measure.PRESSURE] == (RuleVerdict.NO_DATA, None, None, None)
    assert change_verdict.since_seconds == judged.status.begun_seconds <= change_verdict.until_seconds


def write_status(judged: Judged, **status: Any) -> None:
    """What the workload's controller would write beside the generation that it has read."""
    assert judged.cluster.server is not None
    path, api = address_of(judged.workload).path, embedded_api(judged.cluster.server)
    generation = {"observedGeneration": api.get(path)["metadata"]["generation"]}
    api.patch(f"{path}/status", [{"op": "add", "path": "/status", "value": generation | status}], kind="json")


def test_a_rollout_whose_first_new_pod_fits_no_node_is_harm_and_is_rolled_back(
    cluster: acting.Scene, tmp_path: Path
) -> None:
    judged = Judged(cluster, tmp_path)
    replica_count = cluster.live(judged.workload)["spec"]["replicas"]
    stuck = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded", "message": "timed out"}
    write_status(judged, replicas=replica_count + 1, readyReplicas=replica_count, updatedReplicas=1, conditions=[stuck])
    change_status = judged.verify()
    sentence = f"1 of {replica_count} replicas have the present template, and the rollout does not progress: timed out"
    assert (change_status.state, change_status.words) == (ChangeState.REGRESSED, sentence)
    assert judged.actions.roll_back(judged.status).state is ChangeState.ROLLED_BACK


def test_a_paused_workload_has_no_verdict_until_a_pod_has_the_values_and_no_query_is_asked_before(
    cluster: acting.Scene, tmp_path: Path
) -> None:
    judged = Judged(cluster, tmp_path, latency_query=P99)
    assert cluster.server is not None
    path, api = address_of(judged.workload).path, embedded_api(cluster.server)
    replica_count = cluster.live(judged.workload)["spec"]["replicas"]
    api.patch(path, [{"op": "add", "path": "/spec/paused", "value": True}], kind="json")
    write_status(judged, replicas=replica_count, readyReplicas=replica_count)
    change_status = judged.verify()
    sentence = "not verified: no pod has the new values yet: the Deployment is paused"
    assert (change_status.state, change_status.words, judged.asked) == (ChangeState.APPLIED, sentence, [])
    api.patch(path, [{"op": "remove", "path": "/spec/paused"}], kind="json")
    write_status(judged, replicas=replica_count, readyReplicas=replica_count, updatedReplicas=replica_count)
    judged.compared = [Compared(Measure.LATENCY, 0.1, 0.1)]
    assert judged.verify().state is ChangeState.VERIFIED and judged.asked == [P99]


def test_a_latency_that_cannot_be_told_is_no_pass_and_is_said_once(cluster: acting.Scene, tmp_path: Path) -> None:
    judged = Judged(cluster, tmp_path, latency_query=P99)
    judged.compared = [Compared(Measure.THROTTLED, 0.0, 0.0), Compared(Measure.LATENCY, 0.1, None)]
    for _ in range(3):
        change_status = judged.verify()
        assert (change_status.state, change_status.words) == (
            ChangeState.APPLIED,
            "not verified: p99 latency: no samples",
        )
    assert len(judged.verdicts) == 1 and set(judged.asked) == {P99}
    judged.compared = [Compared(Measure.LATENCY, 0.1, 0.11)]
    assert judged.verify().state is ChangeState.VERIFIED and len(judged.verdicts) == 2


def annotate(cluster: acting.Scene, workload: WorkloadRef, query: str) -> None:
    """Give a workload a latency query of its own."""
    assert cluster.server is not None
    pointer = f"/metadata/annotations/{escape_pointer_key(LATENCY_ANNOTATION)}"  # beside the note of the change
    body = [{"op": "add", "path": pointer, "value": query}]
    embedded_api(cluster.server).patch(address_of(workload).path, body, kind="json", fieldManager="kubectl-annotate")


def test_a_workloads_own_query_goes_before_the_setting_and_a_slower_answer_is_harm(
    cluster: acting.Scene, tmp_path: Path
) -> None:
    judged, own = Judged(cluster, tmp_path, latency_query=P99), 'max(mine{namespace="$namespace"})'
    annotate(cluster, judged.workload, own)
    judged.compared = [Compared(Measure.LATENCY, 0.1, 0.5)]
    change_status = judged.verify()
    assert change_status.state is ChangeState.REGRESSED and "p99 latency 100 ms -> 500 ms" in change_status.words
    assert judged.asked == [own]


def test_a_workloads_own_query_of_other_namespaces_is_not_asked_and_no_pass(
    cluster: acting.Scene, tmp_path: Path
) -> None:
    judged = Judged(cluster, tmp_path, latency_query=P99)
    annotate(cluster, judged.workload, 'max(payroll{namespace="audit"})')
    judged.compared = [Compared(Measure.THROTTLED, 0.0, 0.0)]
    change_status = judged.verify()
    # Neither the query of others nor the setting in its place: the owner reads why there is no verdict.
    assert (change_status.state, judged.asked) == (ChangeState.APPLIED, [""])
    assert (
        "annotation cotenant.dev/latency-query reads more than namespace" in change_status.words
        and "$namespace" in change_status.words
    )


def test_harm_marks_the_recommendation_and_a_later_verdict_clears_it(cluster: acting.Scene, tmp_path: Path) -> None:
    judged = Judged(cluster, tmp_path)
    recommendation(cluster, judged.workload)
    judged.compared = [Compared(Measure.THROTTLED, 0.0, 0.9)]
    judged.verify()
    condition = judged.regressed()
    assert condition is not None and (condition["status"], condition["reason"]) == ("True", "DidHarm")
    assert "throttled CPU periods 0.0 % -> 90.0 %" in condition["message"]
    judged.actions.roll_back(judged.status)
    assert judged.regressed() == condition  # taken back: the recommendation would do the same again
    acting.settle_rollouts(cluster)
    judged.compared = []
    judged.accept()
    assert judged.verify().state is ChangeState.VERIFIED
    cleared = judged.regressed()
    assert cleared is not None and (cleared["status"], cleared["reason"]) == ("False", "Held")


def test_nothing_is_said_on_a_recommendation_that_never_did_harm(cluster: acting.Scene, tmp_path: Path) -> None:
    judged = Judged(cluster, tmp_path)
    recommendation(cluster, judged.workload)
    assert judged.verify().state is ChangeState.VERIFIED and judged.regressed() is None


def gauges(name: str, pod: str, values: dict[int, float]) -> list[str]:
    return [f'{name}{{namespace="shop",pod="{pod}",container="app"}} {v} {t}' for t, v in values.items()]


def each_minute(start: int, value: float) -> dict[int, float]:
    return dict.fromkeys(range(start, start + SPAN + 1, 60), value)


def test_latency_and_usage_are_asked_around_the_change_of_pods_old_and_new(tmp_path: Path) -> None:
    # 80 ms and half a core before the change, 200 ms and 0.8 cores after it, in pods of another replica set.
    old, new = "web-7d4b-aaaaa", "web-9c2f-bbbbb"
    before, after = each_minute(BEGUN - SPAN, 0.08), each_minute(BEGUN + 60, 0.2)
    used = {pod: {t: (t - start) * rate for t in range(start, start + SPAN + 1, 60)}
            for pod, start, rate in ((old, BEGUN - SPAN, 0.5), (new, BEGUN, 0.8))}  # fmt: skip
    families = {
        "app_p99_seconds": ("gauge", [*gauges("app_p99_seconds", old, before), *gauges("app_p99_seconds", new, after)]),
        "container_cpu_usage_seconds": (
            "counter",
            [line for pod, values in used.items() for line in gauges("container_cpu_usage_seconds_total", pod, values)],
        ),
    }
    lines = [x for name, (kind, texts) in families.items() for x in (f"# TYPE {name} {kind}", *texts)]
    (tmp_path / "m.txt").write_text("\n".join([*lines, "# EOF", ""]))
    blocks_from(tmp_path / "m.txt", tmp_path / "data")
    change = Change("c1", "b1", "shop", "Deployment", "web", "ann", (), "template", "d@0", ())
    with Server(tmp_path / "data") as server:
        client = Client(PrometheusSettings(url=server.url))
        source = PrometheusComparison(client, {})
        comparisons = {
            q: source(change, BEGUN, BEGUN + SPAN, [Objective(Measure.LATENCY, q)])[-1]
            for q in (P99, "app_p99_seconds", "max(", "none")
        }
        (trace,) = source.trace(change, BEGUN, BEGUN + SPAN)
        client.close()
    assert comparisons[P99] == Compared(Measure.LATENCY, 0.08, 0.2)
    # The query itself is an instant one: at the change both pods have a sample, and only aggregated it is one series.
    assert comparisons["app_p99_seconds"].after is None and "2 series" in comparisons["app_p99_seconds"].error
    assert comparisons["max("].after is None and comparisons["max("].error != ""
    assert comparisons["none"].words == "p99 latency: no samples"
    at = dict(zip(trace.times, trace.usage, strict=True))
    assert trace.resource is Resource.CPU and (trace.times[0], trace.times[-1]) == (BEGUN - SPAN, BEGUN + SPAN)
    assert at[BEGUN - 600] == pytest.approx(500, rel=0.01) and at[BEGUN + 900] == pytest.approx(800, rel=0.01)


def test_settings_say_no_latency_unless_somebody_asks() -> None:
    assert ActionSettings().latency_query == "" and ActionSettings().most_latency_factor == 1.2
