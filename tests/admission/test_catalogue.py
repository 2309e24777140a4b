"""The profiles that we ship do what their comments say, in a real cluster too, and so does the documented example."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.admission.profile import Profile
from cotenant.admission.webhook_server.service import WebhookService
from tests.cluster.api import Api
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.cluster.webhook import running

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "deploy" / "profiles").glob("*.yaml"))
PROFILES = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"
PODS = "/api/v1/namespaces/{}/pods"

# file, namespace label, pod labels -> QoS, priority class, band of the resources ("" = cpu and memory)
CASES = [
    ("web-service", {"cotenant.dev/workload": "web"}, {}, ("LS", "koord-prod", "")),
    ("spark", {"koordinator.sh/enable-colocation": "true"}, {"spark-role": "driver"}, ("BE", "koord-batch", "batch")),
    ("spark", {"koordinator.sh/enable-colocation": "true"}, {"spark-role": "executor"}, ("BE", "koord-batch", "batch")),
    (
        "presto",
        {"cotenant.dev/workload": "presto"},
        {"app.kubernetes.io/component": "coordinator"},
        ("LS", "koord-prod", ""),
    ),
    (
        "presto",
        {"cotenant.dev/workload": "presto"},
        {"app.kubernetes.io/component": "worker"},
        ("LS", "koord-mid", "mid"),
    ),
    (
        "training",
        {"cotenant.dev/workload": "training"},
        {"training.kubeflow.org/job-name": "j"},
        ("LS", "koord-mid", "mid"),
    ),
    (
        "training",
        {"cotenant.dev/workload": "training"},
        {"training.kubeflow.org/job-name": "j", "cotenant.dev/restartable": "true"},
        ("BE", "koord-batch", "batch"),
    ),
    ("ci", {"cotenant.dev/workload": "ci"}, {}, ("BE", "koord-batch", "batch")),
]


def documents(file: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(file.read_text()))


def test_every_shipped_profile_is_read_and_none_matches_everything() -> None:
    profiles = [Profile.parse(body) for file in FILES for body in documents(file)]
    assert {file.stem for file in FILES} == {case[0] for case in CASES}
    assert len({p.name for p in profiles}) == len(profiles)
    assert not [p.name for p in profiles if p.matches({}, {})]


@pytest.fixture(scope="module")
def webhook(control_plane: ControlPlane) -> Iterator[WebhookService]:
    with running(control_plane) as service:
        api = control_plane.api()
        bodies = [body for file in FILES for body in documents(file)]
        for body in bodies:
            api.create(PROFILES, body)
        wait_for("all profiles are known", lambda: len(service.state.view().profiles) >= len(bodies))
        yield service
        for body in bodies:
            api.delete(f"{PROFILES}/{body['metadata']['name']}")


@pytest.fixture
def api(control_plane: ControlPlane) -> Api:
    return control_plane.api()


def label(api: Api, webhook: WebhookService, namespace: str, labels: dict[str, str]) -> None:
    api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": labels}})
    wait_for("labels are known", lambda: labels.items() <= webhook.state.view().namespaces.get(namespace, {}).items())


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join([case[0], *case[2].values()]))
def test_a_shipped_profile_makes_of_a_pod_what_it_promises(
    api: Api, webhook: WebhookService, namespace: str, case: Any
) -> None:
    _, on_namespace, on_pod, (qos, priority, band) = case
    label(api, webhook, namespace, on_namespace)
    amounts = {"cpu": "500m", "memory": "64Mi"}
    container = {"name": "main", "image": "x", "resources": {"requests": amounts, "limits": amounts}}
    body = {"metadata": {"name": "p", "labels": on_pod}, "spec": {"containers": [container]}}
    live = api.create(PODS.format(namespace), body)
    assert live["metadata"]["labels"]["koordinator.sh/qosClass"] == qos
    assert live["spec"]["priorityClassName"] == priority
    renamed = {f"kubernetes.io/{band}-cpu": "500", f"kubernetes.io/{band}-memory": "64Mi"} if band else amounts
    assert live["spec"]["containers"][0]["resources"]["requests"] == renamed


def example(name: str) -> dict[str, Any]:
    page = (ROOT / "docs" / "webhooks.md").read_text()
    match = re.search(rf"<!-- example: {name} -->\n```yaml\n(.*?)```", page, re.DOTALL)
    assert match is not None
    return yaml.safe_load(match[1])


def test_the_documented_spark_example_is_what_happens(api: Api, webhook: WebhookService, namespace: str) -> None:
    label(api, webhook, namespace, {"koordinator.sh/enable-colocation": "true"})
    live = api.create(PODS.format(namespace), example("before"))
    after = example("after")
    assert live["metadata"]["labels"] == after["metadata"]["labels"]
    containers = after["spec"].pop("containers")
    assert {key: live["spec"][key] for key in after["spec"]} == after["spec"]
    assert live["spec"]["containers"][0]["resources"] == containers[0]["resources"]
    driver = example("before")
    driver["metadata"] = {"name": "driver", "labels": {"spark-role": "driver"}}
    labels = api.create(PODS.format(namespace), driver)["metadata"]["labels"]
    assert (labels["koordinator.sh/qosClass"], labels["koordinator.sh/priority"]) == ("BE", "1000")
