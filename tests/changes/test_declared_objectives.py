"""Objectives that people wrote in policies and objects of Sloth, Pyrra and OpenSLO: found, and harm seen by them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest

from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, connect
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.process.clock import ShiftedClock, SystemClock
from cotenant.base.settings.sections import KubeSettings
from cotenant.changes.accept import AcceptanceTerms, Actions
from cotenant.changes.access.configured_service import recommended_of
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.commands.guards import describe
from cotenant.changes.decide.regression_check import regression_results
from cotenant.changes.live_context import who
from cotenant.changes.model.change import Change, ChangeState
from cotenant.changes.model.judgement import ChangeVerdict
from cotenant.changes.objectives.declared import declared_objectives
from cotenant.changes.objectives.found import FoundObjective
from cotenant.changes.objectives.search import find_guards
from cotenant.changes.soak.usage_comparison import PrometheusComparison
from cotenant.changes.soak.watcher import News, Watcher
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.settings import PrometheusSettings
from cotenant_lab.simulation.api_server import AccessRule, Account, EmbeddedServer
from tests.changes.test_found_objectives import CHANGED, EXPORTERS, SETTINGS, SPACE, Exporter, deployment, written
from tests.cluster.api import Json
from tests.cluster.crds import install_crd
from tests.contract.target import embedded_api
from tests.support import acting, slo_objects
from tests.support.prometheus import Server, blocks_from

LABELLED: Final = [exporter for exporter in EXPORTERS if exporter.name != "nginx"]
OWN: Final = "http_server_requests_seconds_count"
BUCKET: Final = "http_server_requests_seconds_bucket"


def selectors(exporter: Exporter) -> tuple[str, str]:
    """(bad, total) as somebody writes them, without the namespace."""
    where = 'destination_workload="istio"' if exporter.name == "istio" else f'pod=~"{exporter.name}-.*"'
    where = where.replace("pod=", "k8s_pod_name=") if exporter.name == "otel" else where
    return f"{exporter.counter}{{{where},{exporter.bad}}}", f"{exporter.counter}{{{where}}}"


BAD, TOTAL = f'{OWN}{{pod=~"jvm-.*",status=~"5.."}}', f'{OWN}{{pod=~"jvm-.*"}}'
GOOD: Final = f'{OWN}{{pod=~"jvm-.*",status!~"5.."}}'
QUICK: Final = f'{BUCKET}{{pod=~"jvm-.*",le="0.1"}}'
COUNTED: Final = f'{BUCKET}{{pod=~"jvm-.*",le="+Inf"}}'
RATIO: Final = {"bad": slo_objects.metric(BAD), "total": slo_objects.metric(TOTAL), "counter": True}
FORMS: Final = {
    "sloth-events": slo_objects.sloth(SPACE, "sloth-events", slo_objects.events(BAD, TOTAL)),
    "sloth-difference": slo_objects.sloth(SPACE, "sloth-difference", {"events": {
        "errorQuery": f"sum(rate({TOTAL}[{{{{ .window }}}}])) - sum(rate({GOOD}[{{{{.window}}}}]))  # slow ones, too",
        "totalQuery": f"sum(rate({TOTAL}[{{{{.window}}}}]))"}}),
    "sloth-raw": slo_objects.sloth(SPACE, "sloth-raw", {"raw": {
        "errorRatioQuery": f"(sum(rate({BAD}[{{{{.window}}}}])) or vector(0)) / sum(rate({TOTAL}[{{{{.window}}}}]))"}}),
    "sloth-labelled": slo_objects.sloth(
        SPACE, "sloth-labelled", slo_objects.events(f'{OWN}{{status=~"5.."}}', OWN), {"app": "jvm"}),
    "pyrra-ratio": slo_objects.pyrra(
        SPACE, "pyrra-ratio", {
            "ratio": {"errors": {"metric": BAD}, "total": {"metric": TOTAL}, "grouping": ["uri"]}}),
    "pyrra-latency": slo_objects.pyrra(
        SPACE, "pyrra-latency", {"latency": {"success": {"metric": QUICK}, "total": {"metric": COUNTED}}}),
    "openslo-bad": slo_objects.openslo(SPACE, "openslo-bad", indicator={"spec": {"ratioMetric": RATIO}}),
    "openslo-good": slo_objects.openslo(SPACE, "openslo-good", indicator={"spec": {"ratioMetric": {
        "good": slo_objects.metric(GOOD), "total": slo_objects.metric(TOTAL), "counter": True}}}),
    "openslo-referenced": slo_objects.openslo(SPACE, "openslo-referenced", indicatorRef="of-jvm"),
    "openslo-raw": slo_objects.openslo(SPACE, "openslo-raw", indicator={"spec": {"ratioMetric": {
        "rawType": "success",
        "raw": slo_objects.metric(f"1 - (sum(rate({BAD}[5m])) or vector(0)) / sum(rate({TOTAL}[5m]))")}}}),
}  # fmt: skip
"""Each way to write the same promise of the workload "jvm", one of them about slow requests."""
WRONG: Final = {
    # What the workload asks of others; probes; another workload; everybody; what is missing.
    "asks": (slo_objects.events(
        'istio_requests_total{reporter="source",source_workload="calls",response_code="503"}',
        'istio_requests_total{reporter="source",source_workload="calls"}'), "calls"),
    "outbound": (slo_objects.events(
        'response_total{pod=~"calls-.*",direction="outbound",classification="failure"}',
        'response_total{pod=~"calls-.*",direction="outbound"}'), "calls"),
    "client": (slo_objects.events(
        'http_client_request_duration_seconds_count{pod=~"calls-.*",http_response_status_code="500"}',
        'http_client_request_duration_seconds_count{pod=~"calls-.*"}'), "calls"),
    "probes": (slo_objects.events(
        f'{OWN}{{pod=~"probed-.*",uri="/actuator/health",status="500"}}',
        f'{OWN}{{pod=~"probed-.*",uri="/actuator/health"}}'), "probed"),
    "scrapes": (slo_objects.events(
        f'{OWN}{{pod=~"scraped-.*",uri="/actuator/prometheus",status="500"}}',
        f'{OWN}{{pod=~"scraped-.*",uri="/actuator/prometheus"}}'), "scraped"),
    "health": (slo_objects.events(
        'grpc_server_handled_total{pod=~"probed-.*",grpc_service="grpc.health.v1.Health",grpc_code="Internal"}',
        'grpc_server_handled_total{pod=~"probed-.*",grpc_service="grpc.health.v1.Health"}'), "probed"),
    "elsewhere": (slo_objects.events(
        'grpc_server_handled_total{namespace="audit",pod=~"elsewhere-.*",grpc_code="Internal"}',
        'grpc_server_handled_total{namespace="audit",pod=~"elsewhere-.*"}'), "elsewhere"),
    "everybody": (slo_objects.events(f'{OWN}{{status=~"5.."}}', OWN), "jvm"),
    "two-owners": (slo_objects.events(
        'grpc_server_handled_total{pod=~"grpc-.*",grpc_code="Internal"}', TOTAL), "jvm"),
    "no-metric": (slo_objects.events('jvm_errors_total{pod=~"jvm-.*"}', TOTAL), "jvm"),
    "no-label": (slo_objects.events(f'{OWN}{{pod=~"jvm-.*",code=~"5.."}}', TOTAL), "jvm"),
    "no-total": (slo_objects.events(BAD, 'jvm_requests_total{pod=~"jvm-.*"}'), "jvm"),
    "counter": ({"events": {"errorQuery": f"sum({BAD})", "totalQuery": f"sum({TOTAL})"}}, "jvm"),
    "no-share": ({"raw": {"errorRatioQuery": f"sum(rate({TOTAL}[{{{{.window}}}}]))"}}, "jvm"),
    "successes": ({"raw": {"errorRatioQuery":
        f"sum(rate({GOOD}[{{{{.window}}}}])) / sum(rate({TOTAL}[{{{{.window}}}}]))"}}, "jvm"),
    "long": ({"raw": {"errorRatioQuery": f"sum(rate({BAD}[30d])) / sum(rate({TOTAL}[30d]))"}}, "jvm"),
    "template": ({"raw": {"errorRatioQuery": f"sum(rate({BAD}[{{{{.rate}}}}]))"}}, "jvm"),
    "constant": ({"raw": {"errorRatioQuery": "vector(0)"}}, "jvm"),
    "plugin": ({"plugin": {"id": "sloth-common/kubernetes/apiserver/availability"}}, "jvm"),
}  # fmt: skip
"""Indicators of Sloth that say nothing of what callers of a workload wait for, and the workload they seem to be of."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    from tests.changes.test_found_objectives import WRONG as OTHERS

    with Server(written(tmp_path_factory.mktemp("services"), (*EXPORTERS, *OTHERS))) as server:
        client = Client(PrometheusSettings(url=server.url))
        yield client
        client.close()


@pytest.fixture(scope="module")
def server() -> Iterator[EmbeddedServer]:
    """Workloads of each name with a pod each, and the objects of FORMS, of WRONG, and of each exporter."""
    with EmbeddedServer() as embedded_server:
        api = embedded_api(embedded_server)
        slo_objects.serve(api)
        for namespace in (SPACE, "monitoring"):
            api.create("/api/v1/namespaces", {"metadata": {"name": namespace}})
        names = {exporter.name for exporter in LABELLED} | {name for _, name in WRONG.values()}
        for name in sorted(names):
            body = deployment(name, {"app": name})
            api.create(f"/apis/apps/v1/namespaces/{SPACE}/deployments", body)
            pod = {"metadata": {"name": f"{name}-7d4b9c-x2x9z", "labels": {"app": name}},
                   "spec": body["spec"]["template"]["spec"]}  # fmt: skip
            api.create(f"/api/v1/namespaces/{SPACE}/pods", pod)
        for exporter in LABELLED:
            slo_objects.create(
                api, slo_objects.sloth(SPACE, f"of-{exporter.name}", slo_objects.events(*selectors(exporter)))
            )
        for body in FORMS.values():
            slo_objects.create(api, body)
        slo_objects.create(api, slo_objects.indicator(SPACE, "of-jvm", {
            **RATIO, "bad": slo_objects.metric(BAD, "", "prom")}))  # fmt: skip
        slo_objects.create(api, slo_objects.data_source(SPACE, "prom", "Prometheus"))
        for name, (sli, _) in WRONG.items():
            slo_objects.create(api, slo_objects.sloth(SPACE, f"wrong-{name}", sli))
        yield embedded_server


@pytest.fixture(scope="module")
def cluster(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KubeClient]:
    path = tmp_path_factory.mktemp("kube") / "kubeconfig"
    client = connect(KubeSettings(kubeconfig=str(server.write_kubeconfig(path))))
    yield client
    client.close()


def ref(name: str) -> WorkloadRef:
    return WorkloadRef(SPACE, "Deployment", name)


def found_of(cluster: KubeClient, source: Client, name: str) -> dict[str, FoundObjective]:
    """Objectives of SLO objects by the object's name."""
    objectives = find_guards(cluster, source, {}, ref(name), CHANGED, SETTINGS).found
    return {
        objective.source.split("/")[1].split(":")[0]: objective
        for objective in objectives
        if f" {SPACE}/" in objective.source
    }


def harm_by(cluster: KubeClient, source: Client, workload: WorkloadRef, title: str) -> str:
    """The first rule that an hour after the planted change breaks, of those of one object."""
    live = cluster.get(f"/apis/apps/v1/namespaces/{workload.namespace}/deployments/{workload.name}")
    assert live is not None
    objectives = [
        objective
        for objective in declared_objectives(cluster, live, workload).objectives
        if f"/{title}" in objective.name
    ]
    change = Change("c1", "b1", workload.namespace, "Deployment", workload.name, "ann", (), "template", "d@0", ())
    compared = PrometheusComparison(source, {})(change, CHANGED, CHANGED + 3600, objectives)
    rules = [rule for rule in regression_results(compared, SETTINGS) if title in rule.rule]
    return ChangeVerdict(0, 1, tuple(rules)).harm


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("exporter", LABELLED, ids=lambda exporter: exporter.name)
def test_an_object_about_each_kind_of_metric_is_found_and_sees_the_harm(
    exporter: Exporter, source: Client, cluster: KubeClient
) -> None:
    objective = found_of(cluster, source, exporter.name)[f"of-{exporter.name}"]
    # Until the change none failed, and 2 in a hundred may.
    assert (objective.reason, objective.median, objective.is_used) == ("", 0.0, True)
    assert objective.ceiling == pytest.approx(1 - slo_objects.PROMISED) and objective.false_alarms == 0.0
    assert "more than the objective of 2.0 %" in harm_by(cluster, source, ref(exporter.name), f"of-{exporter.name}:")


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("form", FORMS)
def test_each_way_to_write_an_objective_is_read_and_sees_the_harm(
    form: str, source: Client, cluster: KubeClient
) -> None:
    objective = found_of(cluster, source, "jvm")[form]
    assert (objective.reason, objective.is_used, objective.false_alarms) == ("", True, 0.0)
    assert objective.period == {"s": "", "p": "4w", "o": "28d"}[form[0]]
    harm = harm_by(cluster, source, ref("jvm"), form)
    # Of requests after the change a twentieth fails, and half takes longer than 100 ms.
    # The mean of 5-minute rates begins with rates from before the change, of samples that are five minutes apart.
    after = {"pyrra-latency": "50.0 %", "openslo-raw": "4.2 %"}.get(form, "5.0 %")
    assert f"-> {after}, more than the objective of 2.0 %" in harm


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("wrong", WRONG)
def test_an_object_with_a_wrong_query_guards_nothing_and_says_why(
    wrong: str, source: Client, cluster: KubeClient
) -> None:
    name = WRONG[wrong][1]
    guards = find_guards(cluster, source, {}, ref(name), CHANGED, SETTINGS)
    mine = [objective for objective in guards.found if f"/wrong-{wrong}:" in objective.source]
    assert all(objective.reason for objective in mine)
    is_said = bool(mine) or any(f"/wrong-{wrong}:" in gap for gap in guards.gaps)
    # Objects of others are not this workload's business.
    assert is_said is (wrong not in ("elsewhere", "two-owners"))
    assert harm_by(cluster, source, ref(name), f"wrong-{wrong}:") == ""


@pytest.mark.server
def test_an_object_of_another_namespace_is_proposed_and_guards_only_after_a_persons_yes(
    source: Client, server: EmbeddedServer, cluster: KubeClient
) -> None:
    api = embedded_api(server)
    where = f'namespace="{SPACE}",pod=~"grpc-.*"'
    bad, total = (f"grpc_server_handled_total{{{where}{more}}}" for more in (',grpc_code="Internal"', ""))
    slo_objects.create(api, slo_objects.sloth("monitoring", "of-grpc", slo_objects.events(bad, total)))
    slo_objects.create(api, slo_objects.sloth("monitoring", "all", slo_objects.events(*selectors(LABELLED[0]))))
    guards = find_guards(cluster, source, {}, ref("grpc"), CHANGED, SETTINGS)
    (far,) = [objective for objective in guards.found if "monitoring/" in objective.source]
    assert (far.reason, far.is_used, far.ceiling) == ("", False, None)
    assert any(
        "to use this metric, run: kubectl annotate" in line and "monitoring" not in line for line in describe(guards)
    )
    live = cluster.get(f"/apis/apps/v1/namespaces/{SPACE}/deployments/grpc")
    assert live is not None
    assert [objective.name for objective in declared_objectives(cluster, live, ref("grpc")).objectives] == [
        f"Sloth {SPACE}/of-grpc: availability"
    ]


@pytest.mark.server
def test_kinds_that_are_missing_and_rights_that_are_missing_are_notes(source: Client, tmp_path: Path) -> None:
    with EmbeddedServer() as embedded_server:
        api = embedded_api(embedded_server)
        api.create("/api/v1/namespaces", {"metadata": {"name": SPACE}})
        api.create(f"/apis/apps/v1/namespaces/{SPACE}/deployments", deployment("jvm", {"app": "jvm"}))
        slo_objects.serve(api, "slos")
        rule = AccessRule(("get", "list"), ("apps",), ("deployments",))
        token = embedded_server.account("looks", Account("looks", (rule,)))
        settings = KubeSettings(kubeconfig=str(embedded_server.write_kubeconfig(tmp_path / "kubeconfig", token)))
        client = connect(settings)
        guards = find_guards(client, source, {}, ref("jvm"), CHANGED, SETTINGS)
        client.close()
    assert {objective.source for objective in guards.found} == {"JVM (Micrometer)"}
    assert "SLO objects of OpenSLO were not searched: the right to list them is missing" in guards.gaps


def test_a_crowd_of_objectives_is_not_queried_and_the_rest_is_told_in_one_line(tmp_path: Path) -> None:
    """Each is a query for which the verification of all changes waits, and each refusal a line of the ledger."""
    good = f'sum(rate({OWN}{{namespace="$namespace"}}[5m]))'

    def policy(number: int, query: str) -> Json:
        entry = {"name": "failed", "measure": "ErrorRatio", "ceiling": 0.1, "query": query}
        spec = {"mode": "Observe", "selector": {}, "objectives": [entry]}
        return {"metadata": {"name": f"p{number}", "namespace": SPACE}, "spec": spec}

    with EmbeddedServer() as embedded_server:
        api = embedded_api(embedded_server)
        api.create("/api/v1/namespaces", {"metadata": {"name": SPACE}})
        install_crd(api, "autopilotpolicies.cotenant.dev")
        for number in range(60):
            # every other one reads the series of all namespaces
            query = good if number % 2 else f"sum(rate({OWN}[5m]))"
            api.create(f"/apis/cotenant.dev/v1alpha1/namespaces/{SPACE}/autopilotpolicies", policy(number, query))
        client = connect(KubeSettings(kubeconfig=str(embedded_server.write_kubeconfig(tmp_path / "kubeconfig"))))
        declared = declared_objectives(client, deployment("jvm", {"app": "jvm"}), ref("jvm"))
        client.close()
    assert (len(declared.objectives), len(declared.refused)) == (20, 20 + 1)
    # 30 are queries of its own and 30 are refused: 10 of each are left out
    assert declared.refused[-1].error.startswith("20 further objectives are not read")


BEGUN_HOURS: Final = 30
AFTER_SECONDS: Final = 2 * 3600


def requests_around(workload: WorkloadRef, begun_seconds: int, folder: Path) -> Path:
    """Blocks with requests of a workload of which a twentieth fails from a moment on, and none before."""
    labels = f'namespace="{workload.namespace}",pod="{workload.name}-7d4b9c-x2x9z",uri="/cart"'
    good = failed = 0.0
    lines = ["# TYPE http_server_requests_seconds_count unknown"]
    by_status: dict[str, list[str]] = {"200": [], "500": []}
    for moment in range(begun_seconds - BEGUN_HOURS * 3600, begun_seconds + AFTER_SECONDS, 60):
        harmed = moment > begun_seconds
        good, failed = good + (114 if harmed else 120), failed + (6 if harmed else 0)
        for status, count in (("200", good), ("500", failed)):
            by_status[status].append(f'{OWN}{{{labels},status="{status}"}} {count} {moment}')
    (folder / "m.txt").write_text("\n".join([*lines, *by_status["200"], *by_status["500"], "# EOF", ""]))
    blocks_from(folder / "m.txt", folder / "data")
    return folder / "data"


def promise_of(tool: str, workload: WorkloadRef, bad: str, total: str) -> Json:
    """The same promise as each kind of object has it."""
    ratio = {"bad": slo_objects.metric(bad), "total": slo_objects.metric(total), "counter": True}
    if tool == "policy":
        query = f"(sum(rate({bad}[$window])) or vector(0)) / sum(rate({total}[$window]))"
        objective = {"name": "errors", "measure": "ErrorRatio", "query": query, "ceiling": 0.02}
        return slo_objects.policy(workload.namespace, "promise", {"mode": "Observe", "objectives": [objective]})
    return {
        "Sloth": slo_objects.sloth(workload.namespace, "promise", slo_objects.events(bad, total)),
        "Pyrra": slo_objects.pyrra(
            workload.namespace, "promise", {"ratio": {"errors": {"metric": bad}, "total": {"metric": total}}}
        ),
        "OpenSLO": slo_objects.openslo(workload.namespace, "promise", indicator={"spec": {"ratioMetric": ratio}}),
    }[tool]


class Promised:
    """One change on the embedded server, accepted while a promise stands there, and watched with a real Prometheus."""

    def __init__(self, tmp_path: Path, cluster: acting.Scene, body: Callable[[WorkloadRef], Json]) -> None:
        assert cluster.server is not None
        self.cluster, self.folder, self.news = cluster, tmp_path, list[News]()
        self.workload = cluster.acceptable()[0]
        api = embedded_api(cluster.server)
        slo_objects.serve(api)
        install_crd(api, "autopilotpolicies.cotenant.dev")
        slo_object = body(self.workload)
        if slo_object["kind"] == "AutopilotPolicy":
            api.create(
                f"/apis/cotenant.dev/v1alpha1/namespaces/{self.workload.namespace}/autopilotpolicies", slo_object
            )
        else:
            slo_objects.create(api, slo_object)
        merged = msgspec.structs.replace(acting.ACTIONS, soak_minutes=30.0, auto_rollback=True)
        journal = ChangeLedger(Ledger(tmp_path / "l.db"), SystemClock(), "ann")
        self.actions = Actions(cluster.client, journal, merged, who(cluster.client))
        self.before = cluster.resources(self.workload)
        reviews = self.actions.review(recommended_of(cluster.store)([self.workload]))
        (status,) = self.actions.accept(reviews, AcceptanceTerms(overridden=("cool-down",)))
        assert status.state is ChangeState.APPLIED and cluster.resources(self.workload) != self.before
        acting.settle_rollouts(cluster)

    def watched(self, source: Client, *hours: float) -> list[list[ChangeState]]:
        """What a look of the watcher after each of these times moves the change to."""
        self.actions = self.actions.having(compare=PrometheusComparison(source, {}))
        return [self._look(ahead) for ahead in hours]

    def _look(self, hours: float) -> list[ChangeState]:
        @contextmanager
        def opened() -> Iterator[Actions]:
            yield self.actions

        self.actions.journal.clock = ShiftedClock(hours * 3600)
        return [status.state for status in Watcher(opened, self.news.extend).step()]


def own_selectors(workload: WorkloadRef) -> tuple[str, str]:
    """(bad, total) of the workload's requests."""
    where = f'namespace="{workload.namespace}",pod="{workload.name}-7d4b9c-x2x9z"'
    return f'{OWN}{{{where},status=~"5.."}}', f"{OWN}{{{where}}}"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> acting.Prepared:
    """Recommendations about workloads, which every test puts on a server of its own."""
    return acting.prepared(tmp_path_factory.mktemp("store"))


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize("tool", ["Sloth", "Pyrra", "OpenSLO", "policy"])
def test_a_change_that_breaks_a_promise_is_rolled_back_when_it_has_soaked(
    tool: str, tmp_path: Path, prepared: acting.Prepared
) -> None:
    with acting.embedded(tmp_path, prepared) as acting_cluster:
        promised = Promised(
            tmp_path, acting_cluster, lambda workload: promise_of(tool, workload, *own_selectors(workload))
        )
        data = requests_around(promised.workload, int(time.time()), tmp_path)
        with Server(data) as prometheus:
            client = Client(PrometheusSettings(url=prometheus.url))
            moved = promised.watched(client, 0.2, 0.6)
            client.close()
        assert moved == [[], [ChangeState.ROLLED_BACK]]  # it soaks for half an hour
        assert acting_cluster.resources(promised.workload) == promised.before
        name = "policy promise: errors" if tool == "policy" else f"{tool} {promised.workload.namespace}/promise"
        assert any(f"failed requests ({name}" in news.words for news in promised.news)


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize(
    ("tool", "state"), [("policy", ChangeState.APPLIED), ("Sloth", ChangeState.VERIFIED)], ids=["policy", "object"]
)
def test_without_an_answer_a_policy_leaves_no_verdict_and_an_object_that_never_answered_has_no_say(
    tool: str, state: ChangeState, tmp_path: Path, prepared: acting.Prepared
) -> None:
    with acting.embedded(tmp_path, prepared) as acting_cluster:
        promised = Promised(
            tmp_path, acting_cluster, lambda workload: promise_of(
                tool, workload, *(text.replace(OWN, "nothing_total") for text in own_selectors(workload)))
        )  # fmt: skip
        data = requests_around(promised.workload, int(time.time()), tmp_path)
        with Server(data) as prometheus:
            client = Client(PrometheusSettings(url=prometheus.url))
            promised.watched(client, 0.6)
            client.close()
        (status,) = promised.actions.journal.statuses().values()
        assert status.state is state and acting_cluster.resources(promised.workload) != promised.before
        if tool == "policy":
            assert status.words == "not verified: failed requests (policy promise: errors): no samples"
