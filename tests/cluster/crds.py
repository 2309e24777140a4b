"""Our CRDs in a test cluster, as `deploy/crds` has them."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import yaml

from tests.cluster.api import Api, ApiError, Json
from tests.cluster.waiting import wait_for

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "crds"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def install_crd(api: Api, name: str) -> None:
    """Make one CRD, such as nodeslos.slo.koordinator.sh, if it is not there, and wait until objects can be written."""
    body = _definition(name)
    if not api.exists(f"{CRDS}/{name}"):
        api.create(CRDS, body)
    spec = body["spec"]
    collection = f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}"
    wait_for(f"{name} is served", lambda: _served(api, collection))


@cache
def _definition(name: str) -> Json:
    """Read once: every scene asks for half a dozen, which would take it a quarter of a second each time."""
    body: Json = yaml.safe_load((FOLDER / f"{name}.yaml").read_text())
    return body


def _served(api: Api, collection: str) -> Json | None:
    try:
        return api.get(collection, limit="1")
    except ApiError:
        return None
