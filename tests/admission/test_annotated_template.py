"""Whether an annotation is older than its workload's template, as the webhook's mirror sees it on an API server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from cotenant.admission.webhook_server.cluster_state import WebhookMirrors
from cotenant.base.kube import connect
from cotenant.base.settings.sections import KubeSettings
from cotenant.changes.model.annotated_resources import (
    LABEL_VALUE,
    RESOURCES_ANNOTATION,
    RESOURCES_LABEL,
    AnnotatedResources,
    ResourceSwap,
    encode_swaps,
)
from cotenant_lab.simulation.api_server import EmbeddedServer
from tests.cluster.waiting import wait_for
from tests.contract.target import embedded_api

pytestmark = pytest.mark.server
PATH = "/apis/apps/v1/namespaces/shop/deployments"
SWAPS = {
    "bare": ResourceSwap({}, {"requests": {"cpu": "250m"}}),
    "proxy": ResourceSwap({"requests": {"cpu": "1000m"}}, {"requests": {"cpu": "500m"}}),
}


def deployment(bare: dict[str, Any]) -> dict[str, Any]:
    """One container, and a sidecar that requests a core."""
    proxy = {"name": "proxy", "image": "a", "restartPolicy": "Always", "resources": {"requests": {"cpu": "1"}}}
    containers = [{"name": "bare", "image": "a", "resources": bare}]
    template = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": containers, "initContainers": [proxy]}}
    marks = {"annotations": {RESOURCES_ANNOTATION: encode_swaps(SWAPS)}, "labels": {RESOURCES_LABEL: LABEL_VALUE}}
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "a"}}, "template": template}
    return {"metadata": {"name": "web", **marks}, "spec": spec}


@contextmanager
def mirrored(folder: Path, body: dict[str, Any]) -> Iterator[tuple[Any, WebhookMirrors]]:
    """A client of the server, and the webhook's view of it."""
    with EmbeddedServer() as server:
        api = embedded_api(server)
        api.create("/api/v1/namespaces", {"metadata": {"name": "shop"}})
        api.create(PATH, body)
        client = connect(KubeSettings(kubeconfig=str(server.write_kubeconfig(folder / "kubeconfig"))))
        state = WebhookMirrors(client)
        state.start()
        try:
            yield api, state
        finally:
            state.stop()
            client.close()


def test_an_amount_that_the_template_gets_beside_its_annotation_makes_the_annotation_older(tmp_path: Path) -> None:
    with mirrored(tmp_path, deployment({})) as (api, state):

        def annotated_in_view() -> AnnotatedResources | None:
            return state.view().annotated.get(("Deployment", "shop", "web"))

        assert wait_for("the webhook knows", annotated_in_view).stale == frozenset()
        pointer = "/spec/template/spec/containers/0/resources"
        api.patch(f"{PATH}/web", [{"op": "add", "path": pointer, "value": {"requests": {"cpu": "2"}}}], kind="json")
        wait_for("the newer template", lambda: (resources := annotated_in_view()) is not None and resources.stale)
        assert (annotated_resources := annotated_in_view()) is not None and annotated_resources.stale == frozenset(
            {"bare"}
        )
