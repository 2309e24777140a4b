"""The Helm chart: the objects of `cotenant install`, with values put over them."""

from __future__ import annotations

import base64
import copy
import json
from collections import Counter
from typing import Any

import pytest
import yaml
from cryptography import x509

from cotenant.base.version import __version__
from cotenant.cli.cluster.installation import after_helm
from cotenant.cli.cluster.installation.manifests import FEATURES, bodies, features_off, texts
from cotenant.enforcer.settings import DraSettings
from cotenant.manager.features import NAMES
from tests.cli.chart_policy import violations
from tests.cli.charts import (
    EVERYTHING,
    SWITCHES,
    Json,
    chart,
    containers,
    every_combination,
    helm,
    object_of,
    refusal,
    rendered,
    rendered_by_template,
    typical_combinations,
    values_of,
)
from tests.cluster import needing

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

HELMS_OWN = {
    "cotenant.dev/settings-digest",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/managed-by",
    "app.kubernetes.io/version",
    "helm.sh/chart",
    "helm.sh/resource-policy",
    "imagePullPolicy",
}
SAME_AS_INSTALL = "objects.yaml"
"""Template whose objects are those of `cotenant install`; the others add what takes values to make."""


def name_of(switches: frozenset[str]) -> str:
    return "+".join(sorted(switches)) or "nothing"


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    needing.helm()


def plain(value: Any) -> Any:
    """An object without what Helm and the chart say about their own work."""
    if isinstance(value, list):
        return [plain(member) for member in value]
    if not isinstance(value, dict):
        return value
    own = {key: plain(member) for key, member in value.items() if key not in HELMS_OWN}
    return {key: member for key, member in own.items() if key != "annotations" or member}


def comparable(objects: list[Json]) -> dict[tuple[str, str, str], Json]:
    """Objects by kind, namespace and name; the settings as they are read."""
    by_key = {}
    for body in map(plain, objects):
        if "settings.yaml" in body.get("data", {}):
            settings = yaml.safe_load(body["data"]["settings.yaml"])
            settings["manager"].setdefault("features_off", [])
            body["data"]["settings.yaml"] = settings
        key = (body["kind"], body["metadata"].get("namespace", ""), body["metadata"]["name"])
        by_key[key] = body
    by_key.pop(("Namespace", "", "cotenant"), None)  # `helm install --create-namespace` makes it
    return by_key


def installed(switches: frozenset[str], *, definitions: bool = False) -> list[Json]:
    components = [name for name in SWITCHES if name in switches]
    return [
        body
        for _, text in texts(components)
        if definitions or "kind: CustomResourceDefinition" not in text
        for body in bodies(text)
    ]


def check(switches: frozenset[str], *, definitions: bool = False) -> None:
    """What takes no values to make is what `cotenant install` sends, and all of it keeps the policy."""
    by_template = rendered_by_template(values_of(switches, crds={"install": definitions}))
    shown = comparable(by_template.get(SAME_AS_INSTALL, []))
    assert shown == comparable(installed(switches, definitions=definitions))
    every = [body for bodies in by_template.values() for body in bodies]
    assert violations(every) == []
    names = Counter((o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in every)
    assert [name for name, times in names.items() if times > 1] == [], "Helm refuses a release with one object twice"


@pytest.mark.parametrize("switches", typical_combinations(), ids=name_of)
def test_chart_and_install_render_the_same_objects_and_all_keep_the_policy(switches: frozenset[str]) -> None:
    check(switches)


def test_chart_and_install_render_the_same_definitions() -> None:
    check(EVERYTHING, definitions=True)


@pytest.mark.soak
@pytest.mark.parametrize("switches", list(every_combination()), ids=name_of)
def test_they_do_in_every_combination(switches: frozenset[str]) -> None:
    check(switches)


def test_the_manager_runs_the_features_of_what_is_on() -> None:
    assert {name for names in FEATURES.values() for name in names} == set(NAMES)
    assert features_off(["recommendations"]) == sorted(set(NAMES) - {"recommendations"})
    assert features_off(SWITCHES) == []


NAMED: Json = {"settings": {"profiler": {"prometheus": {"url": "http://prometheus.monitoring"}}}}
NOTHING_READS: Json = values_of(frozenset({"webhooks"}), recorder={"enabled": "auto"})


@pytest.mark.parametrize(
    ("values", "records"),
    [
        ({}, True),
        (NAMED, False),
        ({"settings": {"profiler": {"window_days": 7}}}, True),
        (NAMED | {"recorder": {"enabled": True}}, True),
        ({"recorder": {"enabled": False}}, False),
        ({"scan": {"enabled": False}, "recommendations": {"enabled": True}}, True),
        (NOTHING_READS, False),
    ],
    ids=["nothing said", "Prometheus", "another setting", "both", "switched off", "the manager reads", "nobody reads"],
)
def test_usage_is_recorded_where_no_prometheus_is_named_and_somebody_reads_it(values: Json, records: bool) -> None:
    objects = rendered(values)

    of_recorder = {o["kind"] for o in objects if o["metadata"]["name"] == "cotenant-recorder"}
    everything = {
        "Deployment",
        "PodDisruptionBudget",
        "ServiceAccount",
        "ClusterRole",
        "ClusterRoleBinding",
        "Role",
        "RoleBinding",
        "NetworkPolicy",
    }
    assert of_recorder == (everything if records else set())


def test_the_recorder_is_on_off_or_left_to_the_chart_and_nothing_else() -> None:
    assert "recorder" in refusal({"recorder": {"enabled": "sometimes"}})


def test_versions_are_those_of_the_package() -> None:
    metadata = yaml.safe_load((chart() / "Chart.yaml").read_text())
    assert metadata["appVersion"] == __version__
    images = {c["image"] for body in installed(EVERYTHING) for c in containers(body)}
    assert images == {f"cotenant/cotenant:{__version__}", f"cotenant/cotenant-node:{__version__}"}


def test_another_namespace_is_refused() -> None:
    assert "in namespace cotenant" in refusal({}, "default")


def test_values_are_put_over_the_objects() -> None:
    settings = {
        "store": {"url": "s3://bucket/cotenant"},
        "actions": {"ledger": "s3://bucket/ledger"},
        "enforcer": {"dry_run": False, "tick_seconds": 2},
    }
    manager = {
        "replicas": 2,
        "container": {"resources": {"limits": {"memory": "3Gi"}}},
        "pod": {"nodeSelector": {"a": "b"}},
    }
    image = {"registry": "registry.example", "digest": "sha256:" + "0" * 64}
    more = {"settings": settings, "image": image, "processes": {"manager": manager}, "clusterName": "prod"}
    values = values_of(EVERYTHING, **more)
    values["colocation"]["config"] = {"colocation-config": {"enable": True}}
    objects = rendered(values)
    deployment = object_of(objects, "Deployment", "cotenant-manager")["spec"]
    pod = deployment["template"]["spec"]
    (container,) = pod["containers"]
    assert (deployment["replicas"], pod["nodeSelector"]) == (2, {"a": "b", "kubernetes.io/os": "linux"})
    assert container["image"] == f"registry.example/cotenant/cotenant@sha256:{'0' * 64}"
    assert container["resources"] == {"requests": {"cpu": "200m", "memory": "512Mi"}, "limits": {"memory": "3Gi"}}
    assert {"name": "CLUSTER_NAME", "value": "prod"} in container["env"]
    # The store is elsewhere: no volume, and nothing that keeps the pods on one node.
    assert [v["name"] for v in pod["volumes"]] == ["settings", "tmp"]
    assert "affinity" not in pod
    assert [o for o in objects if o["kind"] == "PersistentVolumeClaim"] == []
    agent, watchdog = containers(object_of(objects, "DaemonSet", "cotenant-enforcer"))
    assert watchdog["image"] == agent["image"]
    env = {e["name"]: e.get("value") for e in agent["env"]}
    assert (env["COTENANT_ENFORCER__DRY_RUN"], env["COTENANT_ENFORCER__TICK_SECONDS"]) == ("false", "2")
    assert len(env) == len(agent["env"])
    assert "helm.sh/hook" in object_of(objects, "Pod", "cotenant-test")["metadata"]["annotations"]
    config = object_of(objects, "ConfigMap", "slo-controller-config")["data"]
    assert json.loads(config["colocation-config"]) == {"enable": True}
    written = yaml.safe_load(object_of(objects, "ConfigMap", "cotenant-settings")["data"]["settings.yaml"])
    assert written["store"] == {"url": "s3://bucket/cotenant"}
    assert written["telemetry"]["log_format"] == "json"


def test_an_autopilot_without_a_volume_needs_a_place_for_its_ledger() -> None:
    elsewhere = {"store": {"url": "s3://bucket/cotenant"}}
    autopilot = frozenset({"autopilot"})
    assert "settings.actions.ledger" in refusal(values_of(autopilot, settings=elsewhere))
    ledger = {"actions": {"ledger": "s3://bucket/ledger"}}
    objects = rendered(values_of(autopilot, settings=elsewhere | ledger))
    written = yaml.safe_load(object_of(objects, "ConfigMap", "cotenant-settings")["data"]["settings.yaml"])
    assert written["actions"] == ledger["actions"]


def digests(objects: list[Json]) -> dict[str, str]:
    """Digest of the settings that a process reads, by its workload."""
    key = "cotenant.dev/settings-digest"
    templates = {b["metadata"]["name"]: b["spec"]["template"] for b in objects if b["kind"] == "Deployment"}
    return {name: template["metadata"].get("annotations", {})[key] for name, template in templates.items()}


def test_a_part_that_is_switched_on_restarts_who_reads_which_parts_are_on() -> None:
    before = digests(rendered(values_of(frozenset({"scan", "recommendations"}))))
    after = digests(rendered(values_of(frozenset({"scan", "recommendations", "colocation"}))))
    assert before.keys() == after.keys() == {"cotenant-manager", "cotenant-dashboard"}
    assert all(before[name] != after[name] for name in before)


def test_a_process_bears_the_digest_of_the_settings_by_which_an_upgrade_finds_who_runs_by_those_of_before() -> None:
    objects = rendered(values_of(EVERYTHING))
    text = object_of(objects, "ConfigMap", "cotenant-settings")["data"]["settings.yaml"]
    assert {digests(objects)[name] for name in after_helm.WRITERS} == {after_helm.digest_of(text)}


def test_values_of_the_node_agents_container_reach_its_watchdog_and_no_variable_stands_twice() -> None:
    security = {"seLinuxOptions": {"type": "spc_t"}}
    enforcer = {
        "env": [{"name": "COTENANT_ENFORCER__DRY_RUN", "value": "true"}],
        "container": {"securityContext": security},
    }
    values = values_of(EVERYTHING, settings={"enforcer": {"dry_run": False}}, processes={"enforcer": enforcer})
    agent, watchdog = containers(object_of(rendered(values), "DaemonSet", "cotenant-enforcer"))
    for container in (agent, watchdog):
        assert container["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert [e["value"] for e in agent["env"] if e["name"] == "COTENANT_ENFORCER__DRY_RUN"] == ["true"]


@pytest.mark.parametrize(
    ("section", "setting", "value"),
    [
        ("dashboard", "port", 9000),
        ("telemetry", "health_port", 1),
        ("enforcer", "state_dir", "/elsewhere"),
        ("manager", "namespace", "koord"),
        ("admission", "namespace", "hooks"),
    ],
)
def test_a_setting_that_the_manifests_fix_is_refused(section: str, setting: str, value: object) -> None:
    assert setting in refusal({"settings": {section: {setting: value}}})


def test_without_settings_it_renders_as_with_none() -> None:
    plain, empty = (rendered_by_template(values_of(EVERYTHING, **more)) for more in ({}, {"settings": None}))
    assert plain[SAME_AS_INSTALL] == empty[SAME_AS_INSTALL]


def test_with_cert_manager_each_certificate_is_by_whom_it_must_be() -> None:
    """Whoever has a certificate of the extender's authority is served: no issuer that signs for others."""
    issuer = {"name": "everybodys", "kind": "ClusterIssuer"}
    objects = rendered(
        values_of(
            EVERYTHING,
            certManager={"enabled": True, "issuerRef": issuer},
            monitoring={"podMonitor": {"enabled": True}},
        )
    )
    issuers = {b["metadata"]["name"]: b["spec"]["issuerRef"]["name"] for b in objects if b["kind"] == "Certificate"}
    assert issuers == {
        "cotenant-ca": "cotenant-self-signed",
        "cotenant-webhook": "everybodys",
        "cotenant-extender": "cotenant-ca",
        "cotenant-scheduler": "cotenant-ca",
    }
    (endpoint,) = object_of(objects, "PodMonitor", "cotenant-webhook")["spec"]["podMetricsEndpoints"]
    certificate = object_of(objects, "Certificate", "cotenant-webhook")["spec"]["secretName"]
    assert endpoint["tlsConfig"]["ca"]["secret"]["name"] == certificate


# --- the policy that every rendering keeps ----------------------------------------------------------------------------
FLAWS: dict[str, tuple[str, Any]] = {
    "may run as root": ("containers.0.securityContext.runAsUser", 0),
    "readOnlyRootFilesystem is not True": ("containers.0.securityContext.readOnlyRootFilesystem", None),
    "keeps capabilities": ("containers.0.securityContext.capabilities", {"add": ["SYS_ADMIN"]}),
    "no seccomp profile": ("containers.0.securityContext.seccompProfile", None),
    "is privileged": ("containers.0.securityContext.privileged", True),
    "no limit of memory": ("containers.0.resources.limits", {}),
    "no probes": ("containers.0.livenessProbe", None),
    "has no version": ("containers.0.image", "registry.example:5000/cotenant"),
    "hostPID is on": ("hostPID", True),
    "is a folder of the node": ("volumes.0.hostPath", {"path": "/etc"}),
    "no ServiceAccount of its own": ("serviceAccountName", "default"),
    "no topology spread": ("topologySpreadConstraints", []),
    "a node of Windows may be chosen": ("nodeSelector", None),
}
"""What the check says -> what of a pod's specification is spoilt, and how; None: taken away."""


def spoil(value: Any, path: str, replacement: Any) -> None:
    *way, last = path.split(".")
    for key in way:
        value = value[int(key)] if key.isdigit() else value[key]
    value[last] = replacement
    if replacement is None:
        del value[last]


def test_the_policy_check_sees_each_flaw() -> None:
    all_objects = installed(EVERYTHING)
    assert violations(all_objects) == []
    for problem, flaw in FLAWS.items():
        objects = copy.deepcopy(all_objects)
        spoil(object_of(objects, "Deployment", "cotenant-extender")["spec"]["template"]["spec"], *flaw)
        (text,) = violations(objects)
        assert problem in text
    budgets = [o for o in all_objects if o["kind"] != "PodDisruptionBudget"]
    assert len(violations(budgets)) == len([o for o in all_objects if o["kind"] == "Deployment"])
    without_quota = violations([o for o in all_objects if o["kind"] != "ResourceQuota"])
    assert len(without_quota) == 4 and all("ResourceQuota" in problem for problem in without_quota)
    role = {
        "kind": "Role",
        "metadata": {"name": "wide"},
        "rules": [{"apiGroups": [""], "resources": ["*"], "verbs": ["get"]}],
    }
    assert "wildcard" in violations([*all_objects, role])[0]
    policy = {
        "kind": "NetworkPolicy",
        "metadata": {"name": "one"},
        "spec": {"podSelector": {"matchLabels": {"a": "b"}}},
    }
    assert any("no NetworkPolicy" in problem for problem in violations([*all_objects, policy]))


# --- values -----------------------------------------------------------------------------------------------------------
def test_the_schema_refuses_what_no_setting_is() -> None:
    wrong = {"settings": {"enforcer": {"dryrun": True}, "telemetry": {"log_format": "xml"}}, "dashbord": {}}
    text = refusal(wrong)
    assert all(word in text for word in ("dryrun", "log_format", "dashbord"))


def test_the_extender_and_the_scheduler_get_certificates_of_one_authority() -> None:
    objects = rendered(values_of(frozenset({"scheduling"}), crds={"install": False}))
    server, client = (
        object_of(objects, "Secret", f"cotenant-{n}-certificate")["data"] for n in ("extender", "scheduler")
    )
    assert server["ca.crt"] == client["ca.crt"]
    authority, *leaves = (
        x509.load_pem_x509_certificate(base64.b64decode(text))
        for text in (server["ca.crt"], server["tls.crt"], client["tls.crt"])
    )
    for leaf in leaves:
        leaf.verify_directly_issued_by(authority)
    names = leaves[0].extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "cotenant-extender.cotenant.svc" in names.get_values_for_type(x509.DNSName)


def test_with_cert_manager_nothing_of_ours_issues_a_certificate() -> None:
    objects = rendered(values_of(EVERYTHING, certManager={"enabled": True}, crds={"install": False}))
    secrets = {o["spec"]["secretName"] for o in objects if o["kind"] == "Certificate"}
    for name in ("extender", "webhook"):
        pod = object_of(objects, "Deployment", f"cotenant-{name}")["spec"]["template"]["spec"]
        assert secrets & {v["secret"]["secretName"] for v in pod["volumes"] if "secret" in v}
    (webhook,) = containers(object_of(objects, "Deployment", "cotenant-webhook"))
    assert webhook["command"][-1] in {m["mountPath"] for m in webhook["volumeMounts"]}
    assert [o["metadata"]["name"] for o in objects if o.get("type") == "kubernetes.io/tls"] == []


def test_the_part_devices_gives_the_node_agent_rights_classes_and_folders() -> None:
    enforcement = frozenset({"enforcement"})
    objects = rendered(values_of(enforcement, devices={"enabled": True}, crds={"install": False}))
    plain = rendered(values_of(enforcement, crds={"install": False}))
    added = {(entry["kind"], entry["metadata"]["name"]) for entry in objects} - {
        (entry["kind"], entry["metadata"]["name"]) for entry in plain
    }
    classes = {("DeviceClass", f"{kind}.node.cotenant.dev") for kind in ("cpu", "fpga", "gpu", "rdma")}
    roles = {("ClusterRole", "cotenant-devices"), ("ClusterRoleBinding", "cotenant-devices")}
    policy = "cotenant-devices-own-slices"
    guards = {("ValidatingAdmissionPolicy", policy), ("ValidatingAdmissionPolicyBinding", policy)}
    assert added == classes | roles | guards
    (agent,) = (entry["spec"]["template"]["spec"] for entry in objects if entry["kind"] == "DaemonSet")
    container = agent["containers"][0]
    assert {"name": "COTENANT_ENFORCER__DRA__ON", "value": "true"} in container["env"]
    mounts = {entry["mountPath"] for entry in container["volumeMounts"]}
    folders = {entry["hostPath"]["path"] for entry in agent["volumes"] if "hostPath" in entry}
    own = DraSettings()
    assert {own.plugin_dir, own.registry_dir, own.cdi_dir} <= mounts & folders


def test_the_agent_may_find_gpus_without_giving_them_out_by_claims() -> None:
    settings = {"enforcer": {"report_devices": True, "dra": {"on": False}}}
    values = values_of(
        frozenset({"enforcement"}), devices={"enabled": True}, crds={"install": False}, settings=settings
    )
    (agent,) = (entry["spec"]["template"]["spec"] for entry in rendered(values) if entry["kind"] == "DaemonSet")
    env = [(entry["name"], entry.get("value")) for entry in agent["containers"][0]["env"]]
    assert [value for name, value in env if name == "COTENANT_ENFORCER__DRA__ON"] == ["false"]
    assert ("COTENANT_ENFORCER__REPORT_DEVICES", "true") in env


def test_devices_without_the_node_agent_are_refused() -> None:
    done = helm("template", "cotenant", str(chart()), "--namespace", "cotenant", values={"devices": {"enabled": True}})
    assert done.returncode != 0
    assert "set enforcement.enabled=true too" in done.stderr
