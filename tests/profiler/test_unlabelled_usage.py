"""Usage that does not say whose it is: the error names the labels that lack, or the names that are not read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from cotenant.base.errors import SourceUnfit
from cotenant.profiler.prometheus import survey
from cotenant.profiler.prometheus.parts import CPU
from tests.support.kube_series import Line, PodSpec, link, node, scanned, served

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]

OWNER = ("ReplicaSet", "web-5c9f7d8b6f")
LINES = [*PodSpec(f"{OWNER[1]}-bcdfg", OWNER).lines(), link(*OWNER, ("Deployment", "web")), *node()]


def without_labels(*names: str, **more: str) -> list[Line]:
    """The lines, usage without these labels and with others."""
    return [
        replace(x, labels={k: v for k, v in x.labels.items() if k not in names} | more)
        if x.metric.startswith("container_") and "pod" in x.labels
        else x
        for x in LINES
    ]


def renamed(lines: Sequence[Line], metric: str, other: str) -> list[Line]:
    return [replace(x, metric=other) if x.metric == metric else x for x in lines]


OF_OPENTELEMETRY = renamed(
    without_labels("namespace", "pod", "container", k8s_pod_name="web", k8s_namespace_name="shop"),
    CPU,
    "container_cpu_time_seconds_total",
)
VARIANTS: dict[str, tuple[list[Line], str, str]] = {
    # lines, what the error says, and its fix
    "a cAdvisor of its own": (
        without_labels("namespace", "pod", "container", id="/docker/0a1b", name="k8s_main_web"),
        f"no series of {CPU} has the labels namespace, pod and container", "does not know pods: scrape the kubelet's",
    ),
    "containers are dropped": (
        without_labels("container"), f"no series of {CPU} has the label container", "let no relabelling drop",
    ),
    "OpenTelemetry": (
        OF_OPENTELEMETRY,
        "it has OpenTelemetry's names, such as container_cpu_time_seconds_total, which are not read",
        "scrape the kubelet's /metrics/cadvisor",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    lines = {name: lines for name, (lines, *_) in VARIANTS.items()}
    with served(tmp_path_factory.mktemp("unlabelled"), lines) as address:
        yield address


@pytest.mark.parametrize("variant", VARIANTS)
def test_usage_that_names_no_container_is_refused_with_the_labels_that_lack(
    variant: str, url: str, tmp_path: Path
) -> None:
    _, text, fix = VARIANTS[variant]
    with pytest.raises(SourceUnfit) as refused:
        scanned(url, variant, tmp_path)
    assert text in refused.value.message
    assert fix in refused.value.fix


def test_a_loss_is_told_by_the_names_that_a_server_has_instead() -> None:
    reasons = survey.losses({"k8s_pod_cpu_usage", "kube_pod_info"})
    assert "OpenTelemetry's names, such as k8s_pod_cpu_usage" in reasons[CPU]
    assert "OpenTelemetry" not in survey.losses({"container_fs_usage_bytes"})[CPU]
