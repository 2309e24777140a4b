"""One `helm install` on a bare cluster: a first page with live use within minutes, from the kubelet alone."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests.cli.charts import chart, release
from tests.cluster import needing
from tests.cluster.control_plane import ControlPlane
from tests.cluster.waiting import wait_for
from tests.node.bare_cluster import bare_cluster, home, state, values

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.xdist_group("cluster")]

GOAL_SECONDS = 120.0
"""From the end of `helm install` to the first page with live use, on a machine that has nothing else to do."""
BUSY = 2.5
"""How much slower a machine with other work may be."""


@pytest.fixture(autouse=True)
def _parts(kubelet_binary: None, containers_here: None) -> None:
    needing.kubernetes()
    needing.helm()


def home_with(plane: ControlPlane, phrase: str) -> str:
    """The first page once it has these words; the cluster's state is printed where it never does."""
    try:
        return wait_for(
            f"a first page with {phrase!r}", lambda: (text := home()) * (phrase in text), BUSY * GOAL_SECONDS
        )
    except BaseException:
        print(home()[:3000], state(plane), sep="\n")
        raise


def test_one_helm_install_shows_live_use_and_says_what_comes_when(tmp_path: Path) -> None:
    with bare_cluster(tmp_path, signed=True) as plane:
        start = time.monotonic()
        release(plane, "install", "cotenant", str(chart()), "--create-namespace", values=values(plane))
        page = home_with(plane, "cores and")
        print(f"live use after {time.monotonic() - start:.0f} s")

        # The pods of the recorder and the dashboard are the whole use of this cluster.
        assert re.search(r"Now 1 node with [1-9]\d* containers? uses \d+\.\d cores and \d+\.\d \wiB\.", page)
        moment = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
        promised = rf"first recommendations from {moment}, forecasts from {moment}, nodes' own peaks from {moment}\."
        assert re.search(rf"Recording since {moment}.*: {promised}", page)
        assert "the recorder (1 node from kubelet)" in page
        # Nobody was started again: the dashboard waits for the first history.
        pods = json.loads(plane.kubectl("get", "pods", "-n", "cotenant", "-o", "json"))["items"]
        assert [c["restartCount"] for p in pods for c in p["status"].get("containerStatuses", ())] == [0, 0]


def test_a_kubelet_that_signs_its_own_certificate_is_named_with_the_fix_which_works(tmp_path: Path) -> None:
    with bare_cluster(tmp_path, signed=False) as plane:
        chart_values = values(plane)
        release(plane, "install", "cotenant", str(chart()), "--create-namespace", values=chart_values)
        page = home_with(plane, "its certificate is refused")

        assert "the kubelet of node bare" in page and "serverTLSBootstrap: true" in page
        assert "--kubelet-insecure" in page

        # Pods are on the node's network here, so the new one needs the port of the old one.
        strategy = json.dumps({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": None}}})
        plane.kubectl("patch", "deployment", "cotenant-recorder", "-n", "cotenant", "-p", strategy)
        chart_values["processes"]["recorder"]["container"]["args"] = ["--kubelet-insecure"]
        release(plane, "upgrade", "cotenant", str(chart()), values=chart_values)
        home_with(plane, "cores and")
