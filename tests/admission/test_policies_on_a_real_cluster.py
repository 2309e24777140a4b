"""Compiled profiles on a real API server: a pod comes out as the webhook's own function makes it."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from cotenant.admission.policies.compiler import API_VERSION, compile_profiles
from cotenant.cli.main import root
from tests.admission.policy_cases import (
    BATCH,
    PROFILES,
    RANGE_CASES,
    PolicyCluster,
    RangeCase,
    limit_containers,
    path_of,
    pod,
    policy_server,
    profile_of,
    random_pod,
    random_profile,
    shipped_profiles,
)
from tests.cluster import binaries, needing
from tests.cluster.api import ApiError
from tests.cluster.control_plane import ControlPlane
from tests.cluster.crds import install_crd
from tests.cluster.namespaces import unique_name
from tests.cluster.waiting import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("cluster")]
COLLECTION = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
WORLDS = 25
PODS_A_WORLD = 16
SHIPPED = {
    "spaces-ci": {"cotenant.dev/workload": "ci", "koordinator.sh/enable-colocation": "true"},
    "spaces-spark": {"koordinator.sh/enable-colocation": "true"},
    "spaces-web": {"cotenant.dev/workload": "web", "koordinator.sh/enable-colocation": "true"},
    "spaces-presto": {"cotenant.dev/workload": "presto"},
    "spaces-training": {"cotenant.dev/workload": "training"},
    "spaces-none": {},
}
SHIPPED_LABELS: tuple[dict[str, str], ...] = (
    {},
    {"spark-role": "driver"},
    {"spark-role": "executor"},
    {"app.kubernetes.io/component": "worker"},
    {"app.kubernetes.io/component": "coordinator"},
    {"training.kubeflow.org/job-name": "t"},
    {"training.kubeflow.org/job-name": "t", "cotenant.dev/restartable": "true"},
)


@pytest.fixture(
    scope="module", params=["", pytest.param(binaries.NEXT, marks=pytest.mark.soak)], ids=["present", "next"]
)
def release(request: pytest.FixtureRequest) -> str:
    (needing.next_kubernetes if request.param else needing.kubernetes)()
    return str(request.param)


@pytest.fixture(scope="module")
def server(release: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    with policy_server(tmp_path_factory.mktemp("policies"), release) as plane:
        yield plane


@pytest.fixture(scope="module")
def version(release: str) -> str:
    """The API version that offers policies: present releases have it behind a feature gate."""
    return API_VERSION if release else API_VERSION + "beta1"


@pytest.fixture(scope="module")
def shipped(server: ControlPlane, version: str) -> PolicyCluster:
    """Shipped profiles, one whose PriorityClass is missing, and an earlier one that gives way to it."""
    absent: dict[str, Any] = {"namespaceSelector": {"matchLabels": {"absent": "yes"}}}
    earlier = profile_of("aaa", labels={"own": "x"}, qosClass="LS", **absent)
    later = profile_of("absent", priorityClassName="nobodys", qosClass="BE", labels={"later": "x"}, **absent)
    namespaces = {**SHIPPED, "absent": absent["namespaceSelector"]["matchLabels"]}
    return PolicyCluster(server.api(), version, [*shipped_profiles(), earlier, later], namespaces)


@pytest.fixture(scope="module")
def worlds(server: ControlPlane, version: str) -> PolicyCluster:
    """Worlds of random profiles, each with a namespace of its own."""
    lot = random.Random(17)
    names = [f"w{index}" for index in range(WORLDS)]
    profiles = [random_profile(lot, f"{label}-{name}", label) for label in names for name in "abc"]
    return PolicyCluster(server.api(), version, profiles, {label: {"world": label} for label in names})


def test_shipped_profiles_give_every_pod_what_the_webhook_gives(shipped: PolicyCluster) -> None:
    resources = {"requests": {"cpu": "1500m", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    changed = 0
    for namespace in SHIPPED:
        for index, labels in enumerate(SHIPPED_LABELS):
            body = pod(f"p{index}", labels)
            body["spec"]["containers"][0]["resources"] = resources
            mutation, expected = shipped.by_webhook(body, namespace)
            assert shipped.claimed(mutation)
            assert shipped.tried(body, namespace) == expected, (namespace, labels, mutation.applied)
            changed += bool(mutation.applied)
    assert changed == 20


def test_a_profile_whose_class_is_missing_writes_nothing_and_an_earlier_one_gives_way(shipped: PolicyCluster) -> None:
    assert shipped.tried(pod("p"), "absent") == shipped.tried(pod("p", {"own": "x"}), "kube-system")


def test_check_says_whether_the_clusters_policies_are_those_of_the_profiles(
    shipped: PolicyCluster, server: ControlPlane, version: str, tmp_path: Path
) -> None:
    api, files = server.api(), [str(file) for file in sorted(PROFILES.glob("*.yaml"))]
    options = ["--api-version", version.rpartition("/")[2], "--kubeconfig", str(server.admin_kubeconfig)]
    outcome = CliRunner().invoke(root, ["config", "profiles", "compile", *files, "--check", *options])
    assert outcome.exit_code == 3  # "aaa", "absent" and the probe belong to no profile of these files
    # and the policy of LimitRanges waits for the classes that profiles give
    assert outcome.stderr.count("belongs to no profile") == 6 and "missing" not in outcome.stderr
    assert [line.split()[:3] for line in outcome.stderr.splitlines() if "differs" in line] == [
        ["MutatingAdmissionPolicy", "cotenant-limit-range-defaults", "differs:"]
    ]
    ci = tmp_path / "ci.yaml"
    ci.write_text((PROFILES / "ci.yaml").read_text().replace("terminationGracePeriodSeconds: 10", "hostname: x"))
    outcome = CliRunner().invoke(root, ["config", "profiles", "compile", str(ci), *files[1:], "--check", *options])
    assert "MutatingAdmissionPolicy cotenant-profile-ci differs: mutations[0].jsonPatch.expression" in outcome.stderr
    # without files: the profiles of the cluster, which knows none without the CRD, then has one
    outcome = CliRunner().invoke(root, ["config", "profiles", "compile", *options])
    assert outcome.exit_code == 1 and "cotenant install --components crds" in outcome.stderr
    assert "v1beta1" not in outcome.stderr
    install_crd(api, "clustercolocationprofiles.config.koordinator.sh")
    api.create(COLLECTION, yaml.safe_load((PROFILES / "ci.yaml").read_text()))
    outcome = CliRunner().invoke(root, ["config", "profiles", "compile", *options, "-o", "json"])
    assert outcome.exit_code == 0
    names = [body["metadata"]["name"] for body in json.loads(outcome.stdout)["items"]]
    shared = ["cotenant-batch-resources"] * 2, ["cotenant-limit-range-defaults"] * 2
    assert names == [*shared[0], *shared[1], "cotenant-profile-ci", "cotenant-profile-ci"]


@pytest.mark.soak
def test_a_wrong_type_in_a_policy_refuses_pods_whatever_its_failure_policy(server: ControlPlane, version: str) -> None:
    """Why the compiler leaves out every field whose type it does not know."""
    api = server.api()
    api.create("/api/v1/namespaces", {"metadata": {"name": "wrong", "labels": {"wrong": "yes"}}})
    wrong = profile_of(
        "wrong",
        namespaceSelector={"matchLabels": {"wrong": "yes"}},
        patch={"spec": {"terminationGracePeriodSeconds": 7}},
    )
    for body in compile_profiles([wrong], version).objects[2:]:
        text = json.dumps(body).replace("value: 7}", "value: true}")
        api.create(path_of(body), json.loads(text))

    def status() -> int:
        try:
            api.create("/api/v1/namespaces/wrong/pods", pod("p"), dryRun="All")
        except ApiError as error:
            return error.status
        return 0

    assert wait_for("the policy", status) == 500


@pytest.mark.soak
def test_random_pods_under_random_profiles_come_out_as_the_webhook_makes_them(worlds: PolicyCluster) -> None:
    lot, claimed, several = random.Random(5), 0, 0
    for index in range(WORLDS * PODS_A_WORLD):
        namespace, body = f"w{index % WORLDS}", random_pod(lot, f"p{index}")
        mutation, expected = worlds.by_webhook(body, namespace)
        result = worlds.tried(body, namespace)
        if not worlds.claimed(mutation):
            continue
        assert result == expected, (body, namespace, mutation.applied)
        claimed, several = claimed + bool(mutation.applied), several + (len(mutation.applied) > 1)
    assert claimed > 100 and several > 30


RANGES = {
    "default": {"default": {"cpu": "500m", "memory": "512Mi"}},
    "default-request": {"defaultRequest": {"cpu": "250m", "memory": "256Mi"}},
    "cpu-alone": {"default": {"cpu": "500m"}},
}
ODD_POLICY_SPECS = {
    "nothing": {},
    "requests": {"requests": {"cpu": "200m", "memory": "200Mi"}},
    "batch": {"requests": BATCH, "limits": BATCH},
    "both": {"requests": {**BATCH, "cpu": "100m"}, "limits": {**BATCH, "cpu": "100m"}},
}


@pytest.mark.parametrize("item", RANGES.values(), ids=RANGES)
@pytest.mark.parametrize("resources", ODD_POLICY_SPECS.values(), ids=ODD_POLICY_SPECS)
@pytest.mark.parametrize("space", ["spaces-ci", "spaces-none"])
def test_what_a_limit_range_puts_back_is_taken_out_by_the_policies_too(
    shipped: PolicyCluster, space: str, resources: dict[str, Any], item: dict[str, object]
) -> None:
    namespace = unique_name("range")
    shipped.api.create("/api/v1/namespaces", {"metadata": {"name": namespace, "labels": SHIPPED[space]}})
    limit_containers(shipped.api, namespace, item)
    body = pod("p", {"koordinator.sh/qosClass": "BE"}, priorityClassName="koord-batch")
    early = [{"name": "side", "image": "x", "restartPolicy": "Always"}, {"name": "init", "image": "x"}]
    body["spec"] |= {"containers": [{"name": "main", "image": "x", "resources": resources}], "initContainers": early}
    tried_pod = shipped.tried(body, namespace)
    everyone = [*tried_pod["spec"]["containers"], *tried_pod["spec"]["initContainers"]]
    plain = {
        (container["name"], side, name)
        for container in everyone
        for side in ("requests", "limits")
        for name in container["resources"].get(side, {})
        if name in ("cpu", "memory")
    }
    # a pod without a profile and without batch resources is none of ours; what the author wrote himself stays
    own = {("main", side, "cpu") for side in ("requests", "limits")} if "cpu" in resources.get("limits", {}) else set()
    ours = space == "spaces-ci" or any(name in BATCH for name in resources.get("requests", {}))
    assert plain == own if ours else plain >= {("main", "requests", "cpu")}


@pytest.mark.parametrize("case", RANGE_CASES.values(), ids=RANGE_CASES)
def test_a_limit_range_gives_a_pod_what_is_of_its_class_alone(shipped: PolicyCluster, case: RangeCase) -> None:
    namespace = unique_name("range")
    labels = SHIPPED["spaces-ci" if case.of == "profiled" else "spaces-none"]
    shipped.api.create("/api/v1/namespaces", {"metadata": {"name": namespace, "labels": labels}})
    limit_containers(shipped.api, namespace, *({"default": defaults} for defaults in case.defaults))
    tried_pod = shipped.tried(case.body, namespace)
    sides = tried_pod["spec"]["containers"][0]["resources"]
    assert {side: amounts for side, amounts in sides.items() if amounts} == case.expected
