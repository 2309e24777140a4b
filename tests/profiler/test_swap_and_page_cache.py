"""What a working set does not tell: what is swapped out counts as well, and what the kernel gives back raises nothing.

One real Prometheus holds every variant; each is scanned and assessed as `cotenant scan` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cotenant.base.reasons import Reason
from cotenant.base.resource import GIB, MIB, Resource
from cotenant.profiler.recorder.exposition import parse_resource_metrics
from cotenant.recommender.model.recommendation import Action, Field
from tests.support.kube_series import END, NODE, Line, PodSpec, link, node, restarts, scanned, served

pytestmark = [pytest.mark.slow, pytest.mark.prometheus]

OWNER = ("ReplicaSet", "web-5c9f7d8b6f")
POD = f"{OWNER[1]}-bcdfg"
OWN = {"namespace": "shop", "pod": POD, "container": "main"}


def pod(mib: float, asks: float = 1024) -> list[Line]:
    """A pod that uses so much of so much memory."""
    lines = PodSpec(POD, OWNER, uses=(100, mib), asks=(1000, asks)).lines()
    return [*lines, link(*OWNER, ("Deployment", "web")), *node(),
            Line("kube_node_info", {"node": NODE, "internal_ip": "10.0.0.1"})]  # fmt: skip


def gauge(metric: str, mib: float, **labels: str) -> Line:
    return Line(metric, labels or OWN, mib * MIB)


def exporter(used_mib: float, **labels: str) -> list[Line]:
    """node_exporter's row of a node with 4 GiB of swap."""
    return [gauge("node_memory_SwapTotal_bytes", 4096, **labels),
            gauge("node_memory_SwapFree_bytes", 4096 - used_mib, **labels)]  # fmt: skip


def killed(lines: list[Line]) -> list[Line]:
    metric = "kube_pod_container_status_restarts_total"
    own = {**OWN, "uid": f"uid-{POD}"}
    return [*(x for x in lines if x.metric != metric), *restarts("kube_pod_container_status", own, END - 7200)]


FULL = pod(2000, 2048)
VARIANTS: dict[str, tuple[list[Line], float | Reason | None, str]] = {
    # lines, the memory request in MiB or why it is withheld (None: lowered), and what a note names
    "nothing is swapped out": (pod(300), None, ""),
    # 300 + 600 MiB, and 15 % above them
    "swapped out": ([*pod(300, 2048), gauge("container_memory_swap", 600)], 900 * 1.15, ""),
    "swapped out, of the kubelet": ([*pod(300, 2048), gauge("container_swap_usage_bytes", 600)], 900 * 1.15, ""),
    "swap is measured and empty": (
        [*pod(300), gauge("container_memory_swap", 0), *exporter(900, instance="10.0.0.1:9100")], None, "",
    ),
    "the node swaps, whose is not told": (
        [*pod(300), *exporter(900, instance="10.0.0.1:9100")], Reason.SWAP_UNKNOWN, NODE,
    ),
    "the node swaps, by the kubelet": (
        [*pod(300), gauge("node_swap_usage_bytes", 900, node=NODE, instance="x:10250")], Reason.SWAP_UNKNOWN, NODE,
    ),
    "some node swaps": ([*pod(300), *exporter(900, instance="unknown:9100")], Reason.SWAP_UNKNOWN, NODE),
    "another node swaps": (
        [*pod(300), *node("node-2"), gauge("node_swap_usage_bytes", 900, node="node-2")], None, "",
    ),
    "the node has swap and does not use it": ([*pod(300), *exporter(0, instance="10.0.0.1:9100")], None, ""),
    # 2000 of 2048 MiB: 15 % above it are 2300
    "the limit is full, of what is not told": (FULL, 2300, ""),
    "page cache": ([*FULL, gauge("container_memory_rss", 150)], Reason.PAGE_CACHE, ""),
    "active files": (
        [*FULL, gauge("container_memory_total_active_file_bytes", 1850), gauge("container_memory_rss", 100)],
        Reason.PAGE_CACHE, "",
    ),
    # shared memory is no file: of 2000 MiB only 100 can be given back
    "shared memory": (
        [*FULL, gauge("container_memory_total_active_file_bytes", 100), gauge("container_memory_rss", 150)], 2300, "",
    ),
    "the process holds it": ([*FULL, gauge("container_memory_rss", 1900)], 2300, ""),
    # killed at 2048 MiB: 20 % above that
    "killed": (killed([*FULL, gauge("container_memory_rss", 150)]), 2048 * 1.2, ""),
}  # fmt: skip


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    lines = {name: lines for name, (lines, *_) in VARIANTS.items()}
    with served(tmp_path_factory.mktemp("memory"), lines) as address:
        yield address


@pytest.mark.parametrize("variant", VARIANTS)
def test_memory_is_what_a_container_needs_and_not_its_working_set_alone(variant: str, url: str, tmp_path: Path) -> None:
    _, meant, phrase = VARIANTS[variant]
    recommendation = scanned(url, variant, tmp_path).recommendations["shop/Deployment/web/main"]
    request, limit = (recommendation.value(Resource.MEMORY, field) for field in Field)
    assert request is not None and limit is not None
    if isinstance(meant, Reason):
        assert (request.action, request.reason) == (Action.WITHHELD, meant)
        assert limit.amount is None or limit.amount <= (limit.now or 0)
    elif meant is None:  # 300 MiB and 15 % of 1 GiB
        assert request.amount == 345 * MIB
    else:
        assert request.amount == pytest.approx(meant * MIB, abs=MIB)
        assert limit.amount == pytest.approx(max(meant, (limit.now or 0) / MIB) * MIB, abs=MIB)
    assert phrase in "\n".join(recommendation.notes)
    assert bool(recommendation.notes) is bool(phrase)


def test_a_recorder_adds_what_is_swapped_out_as_well() -> None:
    labels = 'container="main",namespace="shop",pod="web-0"'
    text = (
        f"container_memory_working_set_bytes{{{labels}}} {GIB} 1700000000000\n"
        f'container_memory_working_set_bytes{{container="side",namespace="shop",pod="web-0"}} {MIB} 1700000000000\n'
        f"container_swap_usage_bytes{{{labels}}} {3 * GIB} 1700000000000\n"
    )
    exposition = parse_resource_metrics(text.encode())
    assert dict(zip(exposition.container_memory.labels, exposition.container_memory.values.tolist(), strict=True)) == {
        labels.encode(): 4 * GIB,
        b'container="side",namespace="shop",pod="web-0"': MIB,
    }
