"""Namespaces of tests: one each, so that tests on one control plane do not meet."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping

from tests.cluster.api import Api
from tests.cluster.waiting import wait_for


def unique_name(stem: str) -> str:
    """A DNS label that begins like `stem` and that no other test has."""
    return f"{re.sub(r'[^a-z0-9]+', '-', stem.lower())[:40].strip('-')}-{uuid.uuid4().hex[:8]}"


def create_namespace(api: Api, name: str, labels: Mapping[str, str] | None = None) -> str:
    """Create it and wait for its service account, without which pods are refused."""
    api.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": dict(labels or {})}})
    account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
    wait_for(f"the service account of {name}", lambda: api.exists(account))
    return name
