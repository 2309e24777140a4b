"""The form in which a server keeps a quantity, and which fields hold one: the same on both servers."""

from __future__ import annotations

import pytest

from tests.cluster.api import Json
from tests.contract.target import Target, refused

WRITTEN: Json = {
    "1000000000": "1G", "1000": "1k", "1500": "1500", "0.8": "800m", "1000m": "1", "1.50": "1500m", "100m": "100m",
    "2000Mi": "2000Mi", "1024Mi": "1Gi", "1.5Gi": "1536Mi", "1073741824": "1073741824", "0.5Ki": "512", "1.1Gi":
    "1181116006400m", "1e3": "1e3", "12e2": "1200", "10E": "10E", "0": "0", "0Mi": "0", "100k": "100k",
    "1000k": "1M", ".5": "500m",
}  # fmt: skip


@pytest.mark.parametrize("text", WRITTEN)
def test_a_quantity_is_kept_in_the_servers_own_form_and_a_patch_may_test_it(target: Target, text: str) -> None:
    path, labels = target.path("apps/v1/deployments"), {"app": "a"}
    container = {"name": "a", "image": "a", "resources": {"requests": {"memory": text}}}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    body = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": spec}
    live = target.admin.create(path, body)
    resources = live["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert resources == {"requests": {"memory": WRITTEN[text]}}
    pointer = "/spec/template/spec/containers/0/resources"
    tests = [{"op": "test", "path": pointer, "value": resources}]
    assert target.admin.patch(f"{path}/a", tests, "json")["spec"] == live["spec"]
    # Whoever applies the same amount in another form changes nothing, although that is a conflict by its text.
    assert target.apply(f"{path}/a", body, force="true")["spec"] == live["spec"]
    if text != WRITTEN[text]:
        assert refused(target, "PATCH", f"{path}/a", body, fieldManager="two").status == 409


def test_a_port_and_a_share_are_no_quantities(target: Target) -> None:
    probe = {"httpGet": {"port": 1000}}
    container = {"name": "a", "image": "a", "readinessProbe": probe}
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [container]}}
    spec = {"replicas": 0, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    spec["strategy"] = {"rollingUpdate": {"maxSurge": 1000, "maxUnavailable": "25%"}}
    deployment_spec = target.admin.create(
        target.path("apps/v1/deployments"), {"metadata": {"name": "a"}, "spec": spec}
    )["spec"]
    assert deployment_spec["strategy"]["rollingUpdate"] == {"maxSurge": 1000, "maxUnavailable": "25%"}
    assert deployment_spec["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]["port"] == 1000
