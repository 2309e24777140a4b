"""A command that asks or changes a cluster, and --cluster: it goes through that cluster's context or not at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from cotenant.base.commands.session import CliSession
from cotenant.base.errors import UsageError
from cotenant.base.settings.sections import KubeSettings, StoreSettings
from cotenant.cli.analysis import scan_clusters
from cotenant.cli.registry import PROVIDERS

CONTEXTS = ("west", "east")
ASKS = {"kube.context": None}
"""Flags of a command that asks a cluster, without --context."""
DECLARED = {"clusters": {"east": {"kube": {"context": "east"}}, "west": {}}}


@pytest.fixture
def session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CliSession]:
    """Sessions with a store of these clusters; the kubeconfig's current context is west's."""
    server = {"name": "server", "cluster": {"server": "https://127.0.0.1:1"}}
    contexts = [{"name": name, "context": {"cluster": "server", "user": "somebody"}} for name in CONTEXTS]
    users = [{"name": "somebody", "user": {"token": "none"}}]
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(
        yaml.safe_dump({"current-context": "west", "clusters": [server], "contexts": contexts, "users": users})
    )
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    monkeypatch.setenv("HOME", str(tmp_path))

    def make(*stored: str, document: dict[str, Any] | None = None, **fields: Any) -> CliSession:
        for name in stored:
            (tmp_path / "store" / name / "results").mkdir(parents=True)
        file = tmp_path / "settings.yaml"
        file.write_text(yaml.safe_dump({"store": {"url": (tmp_path / "store").as_uri()}, **(document or {})}))
        return CliSession(config=file, providers=PROVIDERS, **fields)

    return make


def test_an_undeclared_cluster_is_acted_on_through_its_own_context_alone(session: Callable[..., CliSession]) -> None:
    of_both = session("east", "west")
    assert of_both.of_cluster("west").load(ASKS).settings.section(KubeSettings).context == ""
    with pytest.raises(UsageError, match="no cluster 'east', and the kubeconfig's current context is cluster west"):
        of_both.of_cluster("east").load(ASKS)
    assert of_both.of_cluster("east").load({"kube.context": "east"}).settings.section(KubeSettings).context == "east"


def test_in_a_pod_a_shared_store_may_hold_others(
    session: Callable[..., CliSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_both = session("east", "west")
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert of_both.of_cluster("east").load(ASKS).settings.section(KubeSettings).context == ""


def test_the_only_cluster_of_a_store_may_have_any_name(session: Callable[..., CliSession]) -> None:
    assert session("shop").of_cluster("shop").load(ASKS).cluster is None


def test_beside_one_declared_cluster_another_is_not_acted_on_through_its_context(
    session: Callable[..., CliSession],
) -> None:
    declared = session(document={"kube": {"context": "west"}, "clusters": {"west": {}}})
    assert declared.of_cluster("west").load(ASKS).cluster == "west"
    with pytest.raises(UsageError, match="declare no cluster 'east'"):
        declared.of_cluster("east").load(ASKS)


def test_what_asks_no_cluster_takes_any_name(session: Callable[..., CliSession]) -> None:
    assert session("east", "west").of_cluster("east").load({}).settings.section(StoreSettings).url.endswith("/store")


@pytest.mark.parametrize("path", ["kube.context", "kube.kubeconfig", "profiler.prometheus.labels.cluster"])
def test_a_context_or_label_for_one_cluster_is_refused_beside_all_of_them(
    session: Callable[..., CliSession], path: str
) -> None:
    with pytest.raises(UsageError, match=f"{path} is a setting of a single cluster and .* with --all-clusters"):
        scan_clusters.jobs(session(document=DECLARED, overrides={path: "x"}), {}, offline=False, all_clusters=True)
    with pytest.raises(UsageError, match=f"{path} is a setting of a single cluster"):
        session(document=DECLARED).require_no_context({path: "x"}, "a dashboard of several clusters")
    session(document=DECLARED).require_no_context({path: None}, "a dashboard of several clusters")
