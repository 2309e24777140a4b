"""Measures of services by six and more conventions are found in a real Prometheus; wrong ones are not proposed."""

from __future__ import annotations

import dataclasses
import shlex
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest
from typer.testing import CliRunner

from cotenant.base.errors import SourceUnfit
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, connect
from cotenant.base.ledger.ledger import Ledger
from cotenant.base.process.clock import ShiftedClock, SystemClock
from cotenant.base.settings.sections import KubeSettings
from cotenant.changes.accept import AcceptanceTerms, Actions
from cotenant.changes.access.configured_service import recommended_of
from cotenant.changes.change_ledger import ChangeLedger
from cotenant.changes.commands.guards import describe
from cotenant.changes.decide.field_changes import address_of
from cotenant.changes.decide.regression_check import Measure, Objective, regression_results
from cotenant.changes.live_context import who
from cotenant.changes.model.change import Change, ChangeState
from cotenant.changes.model.judgement import ChangeVerdict
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.objectives.conventions import own_services
from cotenant.changes.objectives.found import FoundObjective, Guards
from cotenant.changes.objectives.query_variables import fill_variables
from cotenant.changes.objectives.search import find_guards
from cotenant.changes.soak.own_series import check_own
from cotenant.changes.soak.usage_comparison import PrometheusComparison
from cotenant.changes.soak.verification import queries_of
from cotenant.changes.soak.watcher import Watcher
from cotenant.cli.main import root
from cotenant.profiler.prometheus.client import Client
from cotenant.profiler.settings import PrometheusSettings
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.api import Api, ApiError, Json
from tests.cluster.control_plane import ControlPlane
from tests.contract.target import embedded_api
from tests.support import acting
from tests.support.prometheus import Server, blocks_from

SPACE: Final = "objectives"
NOW: Final = 1_700_000_000 - 1_700_000_000 % 3600
STEP: Final = 300
HOURS: Final = 30
CHANGED: Final = NOW - 2 * 3600
"""Until then requests take 80 ms and none of them fails; then half of them take 400 ms, and a twentieth fails."""
BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0)
PER_SECOND: Final = 2.0
SETTINGS: Final = ActionSettings()
JVM: Final = "JVM (Micrometer)"


@dataclasses.dataclass(frozen=True)
class Exporter:
    """How one kind writes the metrics of one workload: names, labels, and the label of an outcome."""

    name: str
    histogram: str
    counter: str
    labels: Mapping[str, str]
    good: str
    bad: str
    factor: float = 1.0
    counter_labels: Mapping[str, str] = dataclasses.field(default_factory=dict)


def pod_of(name: str) -> dict[str, str]:
    return {"namespace": SPACE, "pod": f"{name}-7d4b9c-x2x9z"}


EXPORTERS: Final = (
    Exporter("istio", "istio_request_duration_milliseconds", "istio_requests_total",
             {"reporter": "destination", "destination_workload": "istio", "destination_workload_namespace": SPACE},
             'response_code="200"', 'response_code="503"', 1000),
    Exporter("linkerd", "response_latency_ms", "response_total", {**pod_of("linkerd"), "direction": "inbound"},
             'classification="success"', 'classification="failure"', 1000),
    Exporter("envoy", "envoy_http_downstream_rq_time", "envoy_http_downstream_rq_xx",
             {**pod_of("envoy"), "envoy_http_conn_manager_prefix": "ingress_http"},
             'envoy_response_code_class="2"', 'envoy_response_code_class="5"', 1000),
    Exporter("nginx", "nginx_ingress_controller_request_duration_seconds", "nginx_ingress_controller_requests",
             {"namespace": "ingress", "pod": "c-1", "exported_namespace": SPACE, "exported_service": "nginx-web"},
             'status="200"', 'status="502"'),
    Exporter("otel", "http_server_request_duration_seconds", "http_server_request_duration_seconds_count",
             {"k8s_namespace_name": SPACE, "k8s_pod_name": "otel-7d4b9c-x2x9z", "http_route": "/cart"},
             'http_response_status_code="200"', 'http_response_status_code="500"'),
    Exporter("grpc", "grpc_server_handling_seconds", "grpc_server_handled_total",
             {**pod_of("grpc"), "grpc_type": "unary", "grpc_service": "shop.Cart"},
             'grpc_code="OK"', 'grpc_code="Internal"'),
    Exporter("jvm", "http_server_requests_seconds", "http_server_requests_seconds_count",
             {**pod_of("jvm"), "uri": "/cart"}, 'status="200"', 'status="500"'),
)  # fmt: skip
WRONG: Final = (
    # What the workload asks of others, what a probe asks, what another listener serves: none is what callers wait for.
    Exporter("calls", "istio_request_duration_milliseconds", "istio_requests_total",
             {"reporter": "source", "source_workload": "calls", "destination_workload": "bank",
              "destination_workload_namespace": SPACE}, 'response_code="200"', 'response_code="503"', 1000),
    Exporter("calls", "response_latency_ms", "response_total", {**pod_of("calls"), "direction": "outbound"},
             'classification="success"', 'classification="failure"', 1000),
    Exporter("calls", "http_client_request_duration_seconds", "http_client_request_duration_seconds_count",
             pod_of("calls"), 'http_response_status_code="200"', 'http_response_status_code="500"'),
    Exporter("calls", "envoy_http_downstream_rq_time", "envoy_http_downstream_rq_xx",
             {**pod_of("calls"), "envoy_http_conn_manager_prefix": "admin"},
             'envoy_response_code_class="2"', 'envoy_response_code_class="5"', 1000),
    Exporter("probed", "http_server_requests_seconds", "http_server_requests_seconds_count",
             {**pod_of("probed"), "uri": "/actuator/health"}, 'status="200"', 'status="500"'),
    Exporter("probed", "grpc_server_handling_seconds", "grpc_server_handled_total",
             {**pod_of("probed"), "grpc_type": "unary", "grpc_service": "grpc.health.v1.Health"},
             'grpc_code="OK"', 'grpc_code="Internal"'),
    Exporter("probed", "response_latency_ms", "response_total",
             {**pod_of("probed"), "direction": "inbound", "route_kind": "default", "route_name": "probe"},
             'classification="success"', 'classification="failure"', 1000),
    *(Exporter("scraped", "http_server_requests_seconds", "http_server_requests_seconds_count",
               {**pod_of("scraped"), "uri": uri}, 'status="200"', 'status="500"')
      for uri in ("/actuator/prometheus", "/q/metrics", "/q/health/live", "/prometheus")),
    Exporter("streams", "grpc_server_handling_seconds", "grpc_server_handled_total",
             {**pod_of("streams"), "grpc_type": "bidi_stream", "grpc_service": "shop.Feed"},
             'grpc_code="OK"', 'grpc_code="Internal"'),
    # A Service that leads to two workloads, and one of the same name in another namespace.
    Exporter("shared", "nginx_ingress_controller_request_duration_seconds", "nginx_ingress_controller_requests",
             {"namespace": "ingress", "pod": "c-1", "exported_namespace": SPACE, "exported_service": "both"},
             'status="200"', 'status="502"'),
    # A Deployment and a StatefulSet of one name, which a mesh does not tell apart.
    Exporter("twin", "istio_request_duration_milliseconds", "istio_requests_total",
             {"reporter": "destination", "destination_workload": "twin", "destination_workload_namespace": SPACE},
             'response_code="200"', 'response_code="503"', 1000),
    Exporter("elsewhere", "grpc_server_handling_seconds", "grpc_server_handled_total",
             {"namespace": "audit", "pod": "elsewhere-7d4b9c-x2x9z", "grpc_type": "unary", "grpc_service": "a.B"},
             'grpc_code="OK"', 'grpc_code="Internal"'),
)  # fmt: skip


def lines_of(exporter: Exporter, changed: float = CHANGED, until: int = NOW) -> Iterator[tuple[str, str]]:
    """Each line of a week with the family it belongs to; changed: when requests become slow and fail."""
    labels = ",".join(f'{key}="{value}"' for key, value in exporter.labels.items())
    served = dict.fromkeys(("slow", "quick", "failed"), 0.0)
    for moment in range(until - HOURS * 3600, until + 1, STEP):
        harmed = moment > changed
        served["slow"] += PER_SECOND * STEP * (0.5 if harmed else 0.0)
        served["quick"] += PER_SECOND * STEP * (0.5 if harmed else 1.0)
        served["failed"] += PER_SECOND * STEP * (0.05 if harmed else 0.0)
        total = served["slow"] + served["quick"]
        family = f"{exporter.histogram}_bucket"
        for bound in (*BOUNDS, float("inf")):
            count = (served["quick"] if bound >= 0.1 else 0.0) + (served["slow"] if bound >= 0.5 else 0.0)
            le = "+Inf" if bound == float("inf") else f"{bound * exporter.factor:g}"
            yield family, f'{family}{{{labels},le="{le}"}} {count} {moment}'
        if exporter.name == "grpc":  # histogram_quantile leaves out a bucket whose bound is no number
            yield family, f'{family}{{{labels},le="fast"}} {served["quick"]} {moment}'
        yield exporter.counter, f"{exporter.counter}{{{labels},{exporter.good}}} {total - served['failed']} {moment}"
        # As clients do it: there is no series of an outcome before it was seen.
        if served["failed"]:
            yield exporter.counter, f"{exporter.counter}{{{labels},{exporter.bad}}} {served['failed']} {moment}"


def written(folder: Path, exporters: Sequence[Exporter]) -> Path:
    """A folder of blocks with the metrics of these."""
    return blocks_of(folder, (line for exporter in exporters for line in lines_of(exporter)))


def blocks_of(folder: Path, lines: Iterable[tuple[str, str]]) -> Path:
    families: dict[str, list[str]] = {}
    for family, line in lines:
        families.setdefault(family, []).append(line)
    text = [x for name, lines in sorted(families.items()) for x in (f"# TYPE {name} unknown", *lines)]
    (folder / "m.txt").write_text("\n".join([*text, "# EOF", ""]))
    blocks_from(folder / "m.txt", folder / "data")
    return folder / "data"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with Server(written(tmp_path_factory.mktemp("services"), (*EXPORTERS, *WRONG))) as server:
        client = Client(PrometheusSettings(url=server.url))
        yield client
        client.close()


PODS_SPEC: Final[Json] = {"containers": [{"name": "app", "image": "app"}]}


def deployment(name: str, labels: Mapping[str, str]) -> Json:
    template = {"metadata": {"labels": dict(labels)}, "spec": PODS_SPEC}
    spec = {"selector": {"matchLabels": dict(labels)}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kube") / "kubeconfig"


@pytest.fixture(scope="module")
def cluster(kubeconfig: Path) -> Iterator[KubeClient]:
    """A Deployment of each name; this server has no Services."""
    with EmbeddedServer() as server:
        api = embedded_api(server)
        api.create("/api/v1/namespaces", {"metadata": {"name": SPACE}})
        for name in {exporter.name for exporter in (*EXPORTERS, *WRONG)}:
            api.create(f"/apis/apps/v1/namespaces/{SPACE}/deployments", deployment(name, {"app": name}))
        twin = {**deployment("twin", {"app": "other"}), "kind": "StatefulSet"}
        api.create(f"/apis/apps/v1/namespaces/{SPACE}/statefulsets", twin)
        client = connect(KubeSettings(kubeconfig=str(server.write_kubeconfig(kubeconfig))))
        yield client
        client.close()


def guards_of(cluster: KubeClient, source: Client, name: str, at: int = CHANGED) -> Guards:
    return find_guards(cluster, source, {}, WorkloadRef(SPACE, "Deployment", name), at, SETTINGS)


@pytest.mark.server
def test_metrics_are_not_searched_where_services_of_two_clusters_would_be_added_up(
    cluster: KubeClient, tmp_path: Path
) -> None:
    family, moments = "container_cpu_usage_seconds_total", range(CHANGED - 7200, CHANGED + 1, STEP)
    own = f'namespace="{SPACE}",pod="istio-7d4b9c-x2x9z",container="app"'
    series = [(f'{family}{{{own},cluster="{name}"}}', t) for name in ("lab", "prod") for t in moments]
    with Server(blocks_of(tmp_path, ((family, f"{name} {t} {t}") for name, t in series))) as server:
        client = Client(PrometheusSettings(url=server.url))
        with pytest.raises(SourceUnfit, match="2 clusters, by the label cluster: lab, prod"):
            guards_of(cluster, client, "istio")
        labels = {"cluster": "prod"}
        ref = WorkloadRef(SPACE, "Deployment", "istio")
        assert find_guards(cluster, client, labels, ref, CHANGED, SETTINGS).found == []
        client.close()


@pytest.mark.server
@pytest.mark.cluster
def test_an_ingress_is_read_by_the_services_that_lead_to_the_workload_alone(
    source: Client, control_plane: ControlPlane
) -> None:
    api = control_plane.api()
    role = {"kind": "ClusterRole", "name": "view", "apiGroup": "rbac.authorization.k8s.io"}
    subjects = [{"kind": "User", "name": "objectives-owner", "apiGroup": "rbac.authorization.k8s.io"}]
    create(api, "/api/v1/namespaces", {"metadata": {"name": SPACE}})
    binding = {"metadata": {"name": "owner"}, "roleRef": role, "subjects": subjects}
    create(api, f"/apis/rbac.authorization.k8s.io/v1/namespaces/{SPACE}/rolebindings", binding)
    for name, tier in (("nginx", "one"), ("shared", "both"), ("other", "both")):
        labels = {"app": name, "tier": tier}
        create(api, f"/apis/apps/v1/namespaces/{SPACE}/deployments", deployment(name, labels))
        pod = {"metadata": {"name": f"{name}-7d4b9c-x2x9z", "labels": labels}, "spec": PODS_SPEC}
        create(api, f"/api/v1/namespaces/{SPACE}/pods", pod)
    for name, selector in (("nginx-web", {"app": "nginx"}), ("both", {"tier": "both"}), ("outside", {})):
        spec = {"ports": [{"port": 80}], "selector": selector}
        create(api, f"/api/v1/namespaces/{SPACE}/services", {"metadata": {"name": name}, "spec": spec})
    client = control_plane.client(control_plane.user("objectives-owner", []))
    try:
        ingress, shared = (guards_of(client, source, name) for name in ("nginx", "shared"))
    finally:
        client.close()
    assert [(objective.source, objective.measure, objective.reason) for objective in ingress.found] == [
        ("ingress-nginx", Measure.LATENCY, ""),
        ("ingress-nginx", Measure.ERRORS, ""),
    ]
    check_harm_is_seen("nginx", ingress.found, source)
    assert list(shared.found) == []
    assert [gap.partition(" were not")[0] for gap in shared.gaps] == ["SLO objects of Sloth, Pyrra, OpenSLO"]


def create(api: Api, path: str, body: Json) -> None:
    """Create an object, unless an earlier try of this test did."""
    try:
        api.create(path, body)
    except ApiError as error:
        if error.status != 409:
            raise


def test_a_service_counts_where_all_of_its_pods_are_the_workloads() -> None:
    selectors = {"web": {"app": "web"}, "all": {"tier": "front"}, "api": {"app": "api"}, "external": None, "none": {}}
    own = {"app": "web", "tier": "front"}
    pods = [{**own, "pod-template-hash": "7d4b"}, {"app": "api", "tier": "front"}]
    assert own_services(selectors, pods, own) == ["web"]
    # Without the other pods of its tier the second Service leads to this workload alone.
    assert own_services(selectors, pods[:1], own) == ["web", "all"]


def check_harm_is_seen(name: str, objectives: Sequence[FoundObjective], source: Client) -> None:
    """Both measures find the harm that began with the change, and none of them reads other namespaces."""
    queries = {objective.measure: objective.query for objective in objectives}
    for query in queries.values():
        check_own(fill_variables(query, WorkloadRef(SPACE, "Deployment", name), 3600), SPACE, "query")
    change = Change("c1", "b1", SPACE, "Deployment", name, "ann", (), "template", "d@0", ())
    compared = PrometheusComparison(source, {})(
        change, CHANGED, CHANGED + 3600, [Objective(*item) for item in queries.items()]
    )
    by_measure = {c.measure: c for c in compared}
    # Half of the requests lie between 250 and 500 ms: the p99 is 250 + (0.99 - 0.5) / 0.5 x 250 = 495 ms.
    assert by_measure[Measure.LATENCY].after == pytest.approx(0.495, rel=0.02)
    assert by_measure[Measure.ERRORS].before == 0.0
    assert by_measure[Measure.ERRORS].after == pytest.approx(0.05, rel=0.1)
    for measure in queries:
        rules = regression_results([by_measure[measure]], SETTINGS, [measure])
        assert str(measure) in ChangeVerdict(0, 1, tuple(rules)).harm


@pytest.mark.server
@pytest.mark.parametrize("exporter", [e for e in EXPORTERS if e.name != "nginx"], ids=lambda exporter: exporter.name)
def test_latency_and_failures_of_each_kind_are_found_and_harm_is_seen_by_them(
    exporter: Exporter, source: Client, cluster: KubeClient
) -> None:
    objectives = guards_of(cluster, source, exporter.name).found
    assert [(objective.measure, objective.reason) for objective in objectives] == [
        (Measure.LATENCY, ""),
        (Measure.ERRORS, ""),
    ]
    latency, errors = objectives
    # All requests lie between 50 and 100 ms: by linear interpolation the p99 is 50 + 0.99 x 50 = 99.5 ms.
    assert latency.median == pytest.approx(0.0995, rel=1e-6) and errors.median == 0.0
    assert latency.requests_per_hour == pytest.approx(7200, rel=0.01) and latency.false_alarms == 0.0
    check_harm_is_seen(exporter.name, objectives, source)


@pytest.mark.server
@pytest.mark.parametrize("name", sorted({exporter.name for exporter in WRONG}))
def test_what_callers_of_the_workload_do_not_wait_for_is_not_proposed(
    name: str, source: Client, cluster: KubeClient
) -> None:
    guards = guards_of(cluster, source, name)
    assert list(guards.found) == []
    assert ("metrics of Istio name no kind of workload" in " ".join(guards.gaps)) is (name == "twin")


def of_workload(exporter: Exporter, workload: WorkloadRef) -> Exporter:
    """The same exporter in pods of a workload of the cluster."""
    pod = f"{workload.name}-0" if workload.kind == "StatefulSet" else f"{workload.name}-7d4b9c-x2x9z"
    names = {exporter.name: workload.name, SPACE: workload.namespace, pod_of(exporter.name)["pod"]: pod}
    labels = {key: names.get(value, value) for key, value in exporter.labels.items()}
    return dataclasses.replace(exporter, labels=labels)


AFTER_HOURS: Final = 2


@pytest.mark.slow
@pytest.mark.server
def test_once_a_person_says_yes_harm_in_a_service_of_each_kind_is_rolled_back_in_its_window_and_nothing_else_is(
    tmp_path: Path,
) -> None:
    kinds = [exporter for exporter in EXPORTERS if exporter.name != "nginx"]
    begun_seconds = int(time.time())
    with acting.embedded(tmp_path, acting.prepared(tmp_path / "store")) as acting_cluster:
        assert acting_cluster.server is not None
        api, (unharmed, *harmed) = embedded_api(acting_cluster.server), acting_cluster.acceptable()[: len(kinds) + 1]
        assert len(harmed) == len(kinds) == 6
        served = [(of_workload(kind, ref), begun_seconds) for kind, ref in zip(kinds, harmed, strict=True)]
        served.append((of_workload(kinds[-1], unharmed), begun_seconds + AFTER_HOURS * 3600))
        until = begun_seconds + AFTER_HOURS * 3600
        lines = (line for kind, changed in served for line in lines_of(kind, changed, until))
        with Server(blocks_of(tmp_path, lines)) as server:
            source = Client(PrometheusSettings(url=server.url))
            for ref in (*harmed, unharmed):
                guards = find_guards(acting_cluster.client, source, {}, ref, begun_seconds, SETTINGS)
                assert [(objective.measure, objective.reason) for objective in guards.found] == [
                    (Measure.LATENCY, ""),
                    (Measure.ERRORS, ""),
                ]
                use = [line.partition(": ")[2] for line in describe(guards) if line.startswith("  to use this metric")]
                annotations = dict(shlex.split(command)[5].split("=", 1) for command in use)
                add = {"op": "add", "path": "/metadata/annotations", "value": annotations}
                api.patch(address_of(ref).path, [add], kind="json")
                used = find_guards(acting_cluster.client, source, {}, ref, begun_seconds, SETTINGS)
                assert [objective.is_used for objective in used.found] == [True, True]
            before = {ref: acting_cluster.resources(ref) for ref in (*harmed, unharmed)}
            moved = moved_by_watching(acting_cluster, tmp_path, [*before], source, 0.2, 0.6)
            source.close()
        # Each soaks for half an hour: at 12 minutes nothing is decided, at 36 everything.
        expected = {str(ref): ChangeState.ROLLED_BACK for ref in harmed} | {str(unharmed): ChangeState.VERIFIED}
        assert moved == [{}, expected]
        after = {ref: acting_cluster.resources(ref) for ref in before}
        assert {ref for ref in before if after[ref] != before[ref]} == {unharmed}


def moved_by_watching(
    acting_cluster: acting.Scene, folder: Path, refs: Sequence[WorkloadRef], source: Client, *hours: float
) -> list[dict[str, ChangeState]]:
    """Accept a change of each, and return what a look of the watcher after each of these times moves them to."""
    merged = msgspec.structs.replace(acting.ACTIONS, soak_minutes=30.0, auto_rollback=True)
    ledger = ChangeLedger(Ledger(folder / "l.db"), SystemClock(), "ann")
    actions = Actions(acting_cluster.client, ledger, merged, who(acting_cluster.client))
    reviews = [review for ref in refs for review in actions.review(recommended_of(acting_cluster.store)([ref]))]
    accepted = actions.accept(reviews, AcceptanceTerms(overridden=("cool-down",)))
    assert [status.state for status in accepted] == [ChangeState.APPLIED] * len(refs)
    acting.settle_rollouts(acting_cluster)
    actions = actions.having(compare=PrometheusComparison(source, {}))

    @contextmanager
    def opened() -> Iterator[Actions]:
        yield actions

    looks = []
    for ahead in hours:
        ledger.clock = ShiftedClock(ahead * 3600)
        looks.append({str(s.change.ref): s.state for s in Watcher(opened, lambda _news: None).step()})
    return looks


@pytest.mark.server
def test_a_service_that_has_ended_or_is_young_says_so(source: Client, cluster: KubeClient) -> None:
    ended = guards_of(cluster, source, "jvm", NOW + 4 * 3600).found
    assert {objective.reason for objective in ended} == {"no request was counted in the last two hours"}
    # The first whole hour ends an hour after the first sample: nine values ten hours after it, and one from a part.
    young = guards_of(cluster, source, "jvm", NOW - HOURS * 3600 + 10 * 3600).found
    assert {objective.reason for objective in young} == {"the metric was measured for 10 hours; 24 are needed"}


@pytest.mark.slow
@pytest.mark.server
def test_a_convention_that_is_too_large_for_the_server_is_a_gap_and_the_others_are_read(
    tmp_path: Path, cluster: KubeClient
) -> None:
    istio, jvm = (exporter for exporter in EXPORTERS if exporter.name in ("istio", "jvm"))
    # The workload "jvm" has both kinds, of Istio a series from each of a hundred callers, of its own a series alone.
    mesh = {**istio.labels, "destination_workload": "jvm"}
    callers = [dataclasses.replace(istio, labels={**mesh, "source_workload": f"c{index}"}) for index in range(100)]
    # Istio: 100 callers x 12 samples of an hour at a time; the JVM's: a histogram of 6 series x 12, and 168 results.
    with Server(written(tmp_path, [*callers, jvm]), options=["--query.max-samples=800"]) as server:
        client = Client(PrometheusSettings(url=server.url))
        guards = guards_of(cluster, client, "jvm")
        client.close()
    assert [(objective.source, objective.reason) for objective in guards.found] == [(JVM, ""), (JVM, "")]
    (gap,) = [gap for gap in guards.gaps if gap.startswith("metrics of Istio")]
    assert gap.startswith("metrics of Istio were not read: ") and "too many samples" in gap
    assert f"  {gap}" in describe(guards)


@pytest.mark.server
def test_the_command_prints_what_was_found_and_what_a_person_types_to_use_it(
    source: Client, cluster: KubeClient
) -> None:
    lines = list(describe(guards_of(cluster, source, "jvm")))
    assert lines[0] == f"{SPACE}/Deployment/jvm" and lines[1].startswith("  changes are verified only by OOM kills")
    shown = "now 99.5 ms, median 99.5 ms, highest 99.5 ms, 7,200 requests an hour"
    assert f"found: p99 latency, JVM (Micrometer): {shown}" in lines
    commands = [shlex.split(line.partition(": ")[2]) for line in lines if line.startswith("  to use this metric")]
    heads = [arguments[:5] for arguments in commands]
    assert heads == [["kubectl", "annotate", "-n", SPACE, "deployment/jvm"]] * 2
    annotations = dict(arguments[5].split("=", 1) for arguments in commands)
    # What the shell passes on is what a verdict reads from the workload.
    queries, refused = queries_of(
        {"metadata": {"annotations": annotations}}, WorkloadRef(SPACE, "Deployment", "jvm"), ""
    )
    objectives = guards_of(cluster, source, "jvm").found
    assert queries == {objective.measure: objective.query for objective in objectives} and refused == []


@pytest.mark.server
def test_a_query_of_their_own_that_guards_already_has_its_week_too(source: Client, cluster: KubeClient) -> None:
    with_query = msgspec.structs.replace(SETTINGS, latency_query="vector(0.25)")
    guards = find_guards(cluster, source, {}, WorkloadRef(SPACE, "Deployment", "calls"), CHANGED, with_query)
    (own,) = guards.found
    # Prometheus answers a constant at each of the week's 168 hours.
    assert (own.query, own.is_used, own.reason) == ("vector(0.25)", True, "") and own.values == (0.25,) * 168
    assert sum(line.startswith("  in use: ") for line in describe(guards)) == 1


@pytest.mark.server
def test_the_command_says_that_nothing_was_found_and_which_setting_is_missing(
    source: Client, cluster: KubeClient, kubeconfig: Path
) -> None:
    # The samples end in 2023, and the command looks at the week before now.
    arguments = ["explain", "guards", f"{SPACE}/Deployment/jvm", "--kubeconfig", str(kubeconfig)]
    done = CliRunner().invoke(root, arguments, env={"COTENANT_PROFILER__PROMETHEUS__URL": source.url})
    assert done.exit_code == 0, done.output
    assert "no metric of latency or failed requests of this workload was found in the last week" in done.stdout
    without = CliRunner().invoke(root, arguments, env={"COTENANT_PROFILER__PROMETHEUS__URL": ""})
    assert without.exit_code != 0 and "profiler.prometheus.url" in f"{without.output} {without.exception}"
