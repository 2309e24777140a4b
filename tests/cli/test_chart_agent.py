"""Settings of the node agent in the chart: each section that the agent reads reaches it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cotenant.settings import Settings
from tests.cli.charts import containers, object_of, rendered, values_of
from tests.cluster import needing

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

SOURCES = Path(__file__).parents[2]
SECTION = re.compile(r"\.section\((\w+)\)")


@pytest.fixture(scope="module", autouse=True)
def _helm() -> None:
    needing.helm()


def test_settings_of_the_runtime_reach_the_node_agent_with_the_folder_of_the_socket() -> None:
    runtime = {"nri": True, "nri_socket": "/run/other/nri.sock"}
    settings = {"runtime": runtime, "kube": {"timeout_seconds": 7}}
    daemons = object_of(
        rendered(values_of(frozenset({"enforcement"}), settings=settings)), "DaemonSet", "cotenant-enforcer"
    )
    agent, _ = containers(daemons)
    env = {e["name"]: e.get("value") for e in agent["env"]}
    assert (env["COTENANT_RUNTIME__NRI"], env["COTENANT_RUNTIME__NRI_SOCKET"]) == ("true", "/run/other/nri.sock")
    assert env["COTENANT_KUBE__TIMEOUT_SECONDS"] == "7"
    (mount,) = [m for m in agent["volumeMounts"] if m["name"] == "nri"]
    (volume,) = [v for v in daemons["spec"]["template"]["spec"]["volumes"] if v["name"] == "nri"]
    assert (mount["mountPath"], volume["hostPath"]) == ("/run/other", {"path": "/run/other", "type": "Directory"})


def test_the_node_agent_gets_every_section_of_settings_that_it_reads() -> None:
    """By its code: a section that the chart does not send would be accepted in values and without effect."""
    read = {name for file in (SOURCES / "enforcer").rglob("*.py") for name in SECTION.findall(file.read_text())}
    sections = {type(getattr(Settings(), field)).__name__: field for field in Settings.__struct_fields__}
    template = (SOURCES / "deploy/chart/templates/_workload.tpl").read_text()
    sent = re.search(r"range \$section := list ([^-]*)-}}", template)
    assert sent and {sections[name] for name in read} <= {word.strip('"') for word in sent[1].split()}
