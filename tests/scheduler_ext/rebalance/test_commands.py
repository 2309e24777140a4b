"""`cotenant serve descheduler --once`: tables, JSON, exit codes, and a plan on a real API server with real budgets."""

from __future__ import annotations

import csv
import io
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from cotenant.base.commands.output import Format
from cotenant.base.kube import Mirror, Writer
from cotenant.base.kubernetes.models.pod import WaitingPodWire
from cotenant.base.people import Role
from cotenant.base.reasons import SENTENCES, Reason
from cotenant.base.resource import Resource
from cotenant.base.settings.sections import KubeSettings
from cotenant.manager.decisions.results import RunResults
from cotenant.scheduler_ext.extender.settings import LoadAwareSettings
from cotenant.scheduler_ext.rebalance.arguments import arguments_from_settings
from cotenant.scheduler_ext.rebalance.cluster_reading import RebalanceReading, read
from cotenant.scheduler_ext.rebalance.commands import RebalanceMode, RoundPart, arguments_from
from cotenant.scheduler_ext.rebalance.commands import _print as print_report
from cotenant.scheduler_ext.rebalance.controllers.descheduler_controller import DeschedulerConfig, DeschedulerController
from cotenant.scheduler_ext.rebalance.decide import decide
from cotenant.scheduler_ext.rebalance.emptying.arguments import EmptyingArgs, HighNodeLoadArgs
from cotenant.scheduler_ext.rebalance.migration.job import MigrationJob
from cotenant.scheduler_ext.rebalance.model.tables import MOVES, NODES, RebalanceReport
from cotenant.scheduler_ext.rebalance.moves.service import move_service_of
from cotenant.scheduler_ext.rebalance.published_outlooks import WorkloadMedian
from cotenant.scheduler_ext.rebalance.rebalance_report import emptying_report_of, move_rows, report_of
from cotenant.settings import Settings
from tests.cluster.accounts import account
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.fixtures import FakeNodes
from tests.cluster.waiting import wait_for
from tests.scheduler_ext.rebalance.small_cluster import NOW, arguments, foreseen, inputs, node, pod
from tests.support.command_line import cotenant
from tests.support.plans import person

METRICS = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
JOBS = "/apis/scheduling.koordinator.sh/v1alpha1/podmigrationjobs"
DESCHEDULER = ("serve", "descheduler", "--once")
LATER = 3600.0
"""Pods are not moved in their first half hour; the test looks an hour ahead."""


@pytest.fixture
def report() -> RebalanceReport:
    hot = node("hot", pod("a-1", 20, memory_percent=1), pod("b-1", 20, local_storage=True), system=50, ahead=(90, 95))
    cluster = inputs(hot, node("cold", system=10, ahead=(10, 30)), node("silent", updated=0))
    reading = RebalanceReading(cluster, gaps=(), forecasts=1)
    return report_of(reading, arguments(), with_forecast=True, configured=True)


def test_rows_say_what_happens_to_each_node_and_pod(report: RebalanceReport) -> None:
    nodes = {row["node"]: row for row in report.nodes.rows()}
    assert list(nodes) == ["hot", "cold", "silent"]
    hot, silent = nodes["hot"], nodes["silent"]
    # the pod grows as its node: at the peak of 95 % it uses 20 x 95 / 90 = 21.1 %
    assert [round(hot[f"cpu_{name}"], 2) for name in ("now", "after", "peak", "peak_after", "high")] == [
        0.9, 0.7, 0.95, 0.74, 0.7,
    ]  # fmt: skip
    assert (hot["load"], hot["moves"], nodes["cold"]["moves"]) == ("high", -1, 1)
    assert (silent["load"], silent["reason"], silent["cpu_now"]) == ("unknown", "metric-expired", None)
    moved, stays = report.moves.rows()
    assert (moved["pod"], moved["source"], moved["target"], moved["cpu"]) == ("shop/a-1", "hot", "cold", 2000)
    assert (stays["decision"], stays["pod"], stays["reason"]) == ("stay", "shop/b-1", "local-storage")


@pytest.mark.parametrize("output", list(Format))
def test_every_format_has_the_same_rows(
    report: RebalanceReport, output: Format, capsys: pytest.CaptureFixture[str]
) -> None:
    print_report(report, RoundPart.ALL, output, headers=True)
    text = capsys.readouterr().out
    if output in (Format.JSON, Format.YAML):
        document = json.loads(text) if output is Format.JSON else yaml.safe_load(text)
        assert [row["pod"] for row in document["moves"]] == ["shop/a-1", "shop/b-1"]
        assert set(document["nodes"][0]) == {column.name for column in NODES.columns}
    elif output is Format.CSV:
        rows = list(csv.DictReader(io.StringIO(text)))
        assert [row["pod"] for row in rows] == ["shop/a-1", "shop/b-1"]
        assert set(rows[0]) == {column.name for column in MOVES.columns}
    else:
        assert "shop/a-1" in text and "local-storage" in text and "metric-expired" in text
        assert ("HALF-HOUR-AFTER" in text) is (output is Format.WIDE)


def test_a_node_that_is_emptied_is_shown_with_its_taint() -> None:
    cluster = inputs(node("low", pod("a-1", 10)), node("full", pod("f-1", 50)), node("silent", updated=0))
    arguments = EmptyingArgs(HighNodeLoadArgs(), warnings=("$.x is not read",))
    reading = RebalanceReading(cluster, (), 0)
    report = emptying_report_of(reading, arguments, with_forecast=True, configured=False)
    rows = {row["node"]: row for row in report.nodes.rows()}
    assert (rows["low"]["load"], rows["low"]["mark"], rows["low"]["moves"]) == ("emptying", "set", -1)
    assert (rows["silent"]["load"], rows["silent"]["reason"]) == ("unknown", "metric-expired")
    (move,) = report.moves.rows()
    assert (move["pod"], move["target"], move["reason"]) == ("shop/a-1", "full", "node is emptied")
    assert "low: taint cotenant.dev/emptying:PreferNoSchedule set" in report.notes
    assert "no forecasts were used: peaks of moved pods may fit on no node" in report.notes
    assert report.gaps[0] == "the configuration's $.x is not read" and "silent" in report.gaps[1]


def test_the_notes_name_the_forecasts_that_the_round_went_by() -> None:
    half_full = node("low", pod("a-1", 10), ahead=(10,) * 49), node("full", pod("f-1", 50), ahead=(50,) * 49)
    cluster = foreseen(*half_full, forecasts={"a": (10.0,) * 48, "f": (50.0,) * 48})
    of_workloads = "forecasts of 2 workloads over the next 24 hours were used"
    for now, nodes, note in (
        (NOW, 2, of_workloads),
        (NOW, 0, of_workloads),
        (NOW + 86_400, 2, "forecasts of 2 of 2 nodes were used"),
        (NOW + 86_400, 0, "no forecasts were used"),
    ):
        reading = RebalanceReading(replace(cluster, now_seconds=now), (), nodes)
        notes = report_of(reading, arguments(), with_forecast=True, configured=True).notes
        assert any(line.startswith(note) for line in notes), notes
        if nodes:  # a node is emptied by its own forecast, or as if there were none
            emptying = emptying_report_of(
                reading, EmptyingArgs(HighNodeLoadArgs()), with_forecast=True, configured=True
            )
            assert any(line.startswith(note) for line in emptying.notes), emptying.notes


def test_a_pod_waits_only_when_the_scheduler_found_no_node() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    gated = condition | {"reason": "SchedulingGated"}
    for conditions, waits in (([condition], True), ([gated], False), (None, False)):
        pod_object = json.dumps({"status": {"conditions": conditions}})
        assert msgspec.json.decode(pod_object, type=WaitingPodWire).is_unschedulable is waits


def test_the_words_that_are_wrong(tmp_path: Path) -> None:
    without = cotenant("serve", "descheduler", "-o", "json")
    assert without.returncode == 2 and "cotenant serve descheduler --once" in without.stderr
    bad = tmp_path / "bad.yaml"
    bad.write_text("kind: LowNodeLoadArgs\nhighThresholds: {cpu: 130}\n")
    refused = cotenant("serve", "descheduler", "--once", "-f", str(bad))
    assert refused.returncode == 2 and "$.highThresholds.cpu: 130 is not a number from 0 to 100" in refused.stderr
    absent = cotenant("serve", "descheduler", "--once", "-f", str(tmp_path / "absent.yaml"))
    assert absent.returncode == 2 and "cannot be read" in absent.stderr
    nothing = cotenant("serve", "descheduler", "--once", "--show", "emptying")
    assert nothing.returncode == 2 and "Add --plugin HighNodeLoad" in nothing.stderr
    assert arguments_from("", Settings()).low_node_load.high_thresholds.cpu == 65
    assert {mode.value for mode in RebalanceMode} == {"forecast", "observed"}


@pytest.fixture
def cluster(control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes, tmp_path: Path) -> tuple[str, Path]:
    """A hot and a cold node of 10 cores; five replicas of 1 core each on the hot one, of which one may be away."""
    api = control_plane.api()
    for name in ("nodemetrics.slo.koordinator.sh", "usageforecasts.cotenant.dev"):
        install_crd(api, name)
    hot, cold = fake_nodes(2, cpu="10", memory="100Gi")
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"nodeName": hot, "containers": [container]}}
    api.create(
        f"/apis/apps/v1/namespaces/{namespace}/replicasets",
        {
            "metadata": {"name": "web"},
            "spec": {"replicas": 5, "selector": {"matchLabels": labels}, "template": template},
        },
    )
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    selector = {"matchLabels": labels}
    api.create(budgets, {"metadata": {"name": "web"}, "spec": {"minAvailable": 4, "selector": selector}})
    wait_for("one disruption", lambda: (api.get(f"{budgets}/web").get("status") or {}).get("disruptionsAllowed") == 1)
    pods = [item["metadata"]["name"] for item in api.items(f"/api/v1/namespaces/{namespace}/pods")]
    report_usage(api, hot, "4", [(namespace, name) for name in pods])
    report_usage(api, cold, "1", [])
    config = tmp_path / "config.yaml"
    own = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [hot, cold]}]}
    thresholds = {"lowThresholds": {"cpu": 40, "memory": 40}, "highThresholds": {"cpu": 70, "memory": 80}}
    config.write_text(yaml.safe_dump({"kind": "LowNodeLoadArgs", "nodeSelector": own, **thresholds}))
    return hot, config


def moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def report_usage(api: Any, name: str, system: str, pods: list[tuple[str, str]]) -> None:
    """A NodeMetric of now: the system uses `system` cores, each pod one."""
    usage = {"resources": {"cpu": "1", "memory": "1Gi"}}
    api.create(METRICS, {"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": name}})
    node_metric = {"nodeUsage": usage, "systemUsage": {"resources": {"cpu": system, "memory": "1Gi"}}}
    pods_metric = [{"namespace": space, "name": pod_name, "podUsage": usage} for space, pod_name in pods]
    status = {"updateTime": moment(time.time()), "nodeMetric": node_metric, "podsMetric": pods_metric}
    api.patch(f"{METRICS}/{name}/status", {"status": status})


def report_again(api: Any, config: Path, seconds: float) -> None:
    """The same usage of the cluster's two nodes, at this Unix time: a report is neither old nor of the future."""
    document = yaml.safe_load(config.read_text())
    arguments = document["descheduler"]["configuration"] if "descheduler" in document else document
    for name in arguments["nodeSelector"]["matchExpressions"][0]["values"]:
        api.patch(f"{METRICS}/{name}/status", {"status": {"updateTime": moment(seconds)}})


def test_a_plan_on_a_real_server_obeys_its_budgets(control_plane: ControlPlane, cluster: tuple[str, Path]) -> None:
    hot, config = cluster
    kubeconfig = str(control_plane.admin_kubeconfig)
    argv = ("serve", "descheduler", "--once", "-f", str(config), "-o", "json", "--kubeconfig")
    now = cotenant(*argv, kubeconfig)
    assert now.returncode == 0, now.stderr
    document = json.loads(now.stdout)
    assert {row["reason"] for row in document["moves"]} == {"started-lately"}  # nothing is moved in its first half hour
    assert [row["load"] for row in document["nodes"]] == ["high", "low"]  # 4 + 5 of 10 cores; 1 of 10
    assert "nothing was written" in now.stderr
    packing = config.with_name("packing.yaml")
    selector = yaml.safe_load(config.read_text())["nodeSelector"]
    packing.write_text(yaml.safe_dump({"kind": "HighNodeLoadArgs", "nodeSelector": selector}))
    packed = cotenant(
        "serve", "descheduler", "--once", "--plugin", "HighNodeLoad", "-f", str(packing), "--kubeconfig", kubeconfig
    )
    # the hot node is above 65 %: the only under-used node is left for what leaves it
    assert packed.returncode == 0 and SENTENCES[Reason.TOO_FEW_NODES_LOW] in packed.stderr, packed.stderr
    extender = account(control_plane, "cotenant-extender")
    partial = cotenant(*argv, str(extender))
    assert partial.returncode == 4 and "poddisruptionbudgets" in partial.stderr
    # an hour later, by reports of that hour, one pod may leave: the budget permits one disruption
    report_again(control_plane.api(), config, time.time() + LATER)
    reading = read(control_plane.client(extender), LoadAwareSettings(), time.time() + LATER)
    assert [gap for gap in reading.gaps if "budgets" in gap]
    cluster_reading = read(
        control_plane.client(control_plane.admin_kubeconfig), LoadAwareSettings(), time.time() + LATER
    )
    plan = decide(cluster_reading.inputs, arguments_from(str(config), Settings()), with_forecast=False)
    assert [move.source for move in plan.moves] == [hot], plan
    assert {refusal.reason.value for refusal in plan.refusals} == {"disruption-budget"}


def test_a_plan_on_a_real_server_knows_where_volumes_can_be_used(
    control_plane: ControlPlane, namespace: str, fake_nodes: FakeNodes
) -> None:
    api = control_plane.api()
    for name in ("nodemetrics.slo.koordinator.sh", "usageforecasts.cotenant.dev"):
        install_crd(api, name)
    hot, cold = fake_nodes(2, cpu="10", memory="100Gi")
    local = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [hot]}]}
    pinned = {"required": {"nodeSelectorTerms": [local]}}
    affinities: dict[str, Any] = {"pinned": {"nodeAffinity": pinned}, "free": {}, "unbound": {}, "gone": {}}
    for name, affinity in affinities.items():
        amount = {"storage": "1Gi"}
        volume, claim_fields = f"{namespace}-{name}", {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
        source = {"nfs": {"server": "files", "path": "/"}, "capacity": amount, **claim_fields, **affinity}
        if name in ("pinned", "free"):
            api.create("/api/v1/persistentvolumes", {"metadata": {"name": volume}, "spec": source})
        if name != "gone":
            spec = {**claim_fields, "volumeName": volume, "resources": {"requests": amount}}
            claims = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
            api.create(claims, {"metadata": {"name": name}, "spec": spec})
        container = {"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/data"}]}
        data = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
        labels = {"app": name}
        template = {
            "metadata": {"labels": labels},
            "spec": {"nodeName": hot, "containers": [container], "volumes": [data]},
        }
        spec = {"selector": {"matchLabels": labels}, "template": template}
        api.create(f"/apis/apps/v1/namespaces/{namespace}/replicasets", {"metadata": {"name": name}, "spec": spec})
    pods = f"/api/v1/namespaces/{namespace}/pods"
    wait_for("a pod of each", lambda: len(api.items(pods)) == len(affinities))
    apps = {item["metadata"]["name"]: item["metadata"]["labels"]["app"] for item in api.items(pods)}
    report_usage(api, hot, "4", [(namespace, name) for name in apps])
    report_usage(api, cold, "1", [])
    seconds = time.time() + LATER

    def known(user: Any) -> tuple[dict[str, tuple[bool, bool]], list[str]]:
        """Each pod: whether its volumes are known, and whether one has rules; and what could not be read of them."""
        reading = read(control_plane.client(user), LoadAwareSettings(), seconds)
        (load,) = [load for load in reading.inputs.loads if load.node.name == hot]
        by_name = {apps[pod.facts.identity.name]: pod.volumes for pod in load.pods}
        rules = {name: (volumes is not None, bool(volumes)) for name, volumes in by_name.items()}
        return rules, [gap for gap in reading.gaps if "volume" in gap]

    admin = control_plane.admin_kubeconfig
    everything = {"pinned": (True, True), "free": (True, False), "unbound": (False, False), "gone": (False, False)}
    wait_for("bound claims", lambda: known(admin) == (everything, []))
    for name in (hot, cold):
        api.patch(f"{METRICS}/{name}/status", {"status": {"updateTime": moment(seconds)}})
    cluster_reading = read(control_plane.client(admin), LoadAwareSettings(), seconds)
    own = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [hot, cold]}]}
    plan = decide(cluster_reading.inputs, arguments({"nodeSelector": own}), with_forecast=False)
    refused = {apps.get(refusal.pod.partition("/")[2]): refusal.reason for refusal in plan.refusals}
    unknown = Reason.VOLUME_UNKNOWN
    assert (refused["pinned"], refused["unbound"], refused["gone"]) == (Reason.VOLUME_ON_NODE, unknown, unknown)
    assert refused.get("free") not in (Reason.VOLUME_ON_NODE, Reason.VOLUME_UNKNOWN)
    # who may not list volumes leaves all of them alone, and says so
    rules, gaps = known(account(control_plane, "cotenant-extender"))
    assert set(rules.values()) == {(False, False)}
    assert len(gaps) == 1 and gaps[0].startswith("pods with volume claims are not moved: volume claims")


def test_command_and_page_show_the_managers_round(
    control_plane: ControlPlane, cluster: tuple[str, Path], namespace: str
) -> None:
    hot, config = cluster
    api = control_plane.api()
    install_crd(api, "podmigrationjobs.scheduling.koordinator.sh")
    immediate = {**yaml.safe_load(config.read_text()), "anomalyCondition": {"consecutiveAbnormalities": 1}}
    config.write_text(yaml.safe_dump({"descheduler": {"configuration": immediate, "pause_seconds": 0}}))
    defaults, rights = Settings(), account(control_plane, "cotenant-manager")
    kubeconfig = str(rights)
    own = msgspec.structs.replace(defaults.descheduler, configuration=immediate, pause_seconds=0.0)
    settings = msgspec.structs.replace(defaults, descheduler=own, kube=KubeSettings(kubeconfig=kubeconfig))
    client = control_plane.client(rights)
    jobs: Mirror[Any] = Mirror(client, JOBS, dict[str, Any], MigrationJob.parse)
    half_hour = time.time() // 1800 * 1800
    # of five cores half a core is left half an hour later; or all five stay all day
    falls = WorkloadMedian(
        namespace, "ReplicaSet", "web", int(half_hour) - 7200, {Resource.CPU: [500] * 4 + [5000] + [500] * 43}
    )
    stays = WorkloadMedian(namespace, "ReplicaSet", "web", int(half_hour), {Resource.CPU: [5000] * 48})
    results = [RunResults(0, workload_medians=(falls,))]
    relief = replace(arguments_from_settings(immediate), pause_seconds=0.0)
    emptying = EmptyingArgs(HighNodeLoadArgs())
    round_config = DeschedulerConfig(own, settings.extender.load_aware, settings.manager, relief, emptying)
    manager = DeschedulerController(client, {"migration-jobs": jobs}, round_config, lambda: results[-1])
    rows = []
    for seconds in (0, 300):
        jobs.list_once()
        report_again(api, config, time.time() + seconds)
        for intent in manager.decide({}, time.time() + seconds).intents:
            Writer(client, "cotenant-manager").send(intent)
        assert manager.plan is not None
        report_again(api, config, time.time())
        command = cotenant(
            "--config", str(config), "serve", "descheduler", "--once", "-o", "json", "--kubeconfig", kubeconfig
        )
        page = move_service_of(settings).report(person(Role.VIEWER))
        rounds = (move_rows(manager.plan), json.loads(command.stdout)["moves"], page.moves.rows())
        decided = [
            [(row["decision"], row["source"], row.get("target") or "", row["reason"]) for row in each]
            for each in rounds
        ]
        assert decided[0] == decided[1] == decided[2]
        rows.append(decided[0])
        results.append(RunResults(0, workload_medians=(stays,)))
    assert [row[:2] for row in rows[0]] == [("stay", hot)]
    assert rows[1][0][:2] == ("move", hot)
