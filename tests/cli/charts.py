"""The Helm chart rendered by Helm itself, for tests."""

from __future__ import annotations

import atexit
import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import yaml

from tests.cluster import binaries
from tests.cluster.control_plane import ControlPlane
from tools.build_chart import build

SWITCHES = (
    "scan",
    "recorder",
    "recommendations",
    "colocation",
    "scheduling",
    "queues",
    "descheduler",
    "tainting",
    "autopilot",
    "enforcement",
    "webhooks",
)
EVERYTHING = frozenset(SWITCHES)

Json = dict[str, Any]


@cache
def chart() -> Path:
    """The chart as it is shipped, built once a process."""
    folder = Path(tempfile.mkdtemp(prefix="cotenant-chart-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return build(folder / "chart")


def every_combination() -> Iterator[frozenset[str]]:
    """All subsets of the switches; the recorder, which shares little with others, is in half of them."""
    others = [name for name in SWITCHES if name != "recorder"]
    for count in range(len(others) + 1):
        recorder = frozenset({"recorder"} if count % 2 == 0 else ())
        yield from (frozenset(names) | recorder for names in combinations(others, count))


def typical_combinations() -> list[frozenset[str]]:
    """None, each alone, two that share an object, all."""
    pairs = [frozenset({"scan", "colocation"}), frozenset({"recommendations", "webhooks"})]
    return [frozenset(), *(frozenset({name}) for name in SWITCHES), EVERYTHING, *pairs]


def values_of(switches: frozenset[str], **more: Any) -> Json:
    """Values with these parts on and the others off, and more."""
    return {name: {"enabled": name in switches} for name in SWITCHES} | more


def helm(*arguments: str, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
    """Run Helm with values on its standard input."""
    command = [str(binaries.find("helm")), *arguments, *(("-f", "-") if values is not None else ())]
    return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False, timeout=330)


def release(plane: ControlPlane, *arguments: str, values: Mapping[str, Any] | None = None) -> str:
    """What Helm prints, run on a cluster in our namespace; AssertionError with what it printed where it fails."""
    done = helm(*arguments, "--namespace", "cotenant", "--kubeconfig", str(plane.admin_kubeconfig), values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def rendered(values: Mapping[str, Any]) -> list[Json]:
    """The objects that the chart makes of values."""
    return [body for bodies in rendered_by_template(values).values() for body in bodies]


def rendered_by_template(values: Mapping[str, Any]) -> dict[str, list[Json]]:
    """The same by the name of the template that makes them."""
    done = helm("template", "cotenant", str(chart()), "--namespace", "cotenant", values=values)
    assert done.returncode == 0, done.stderr
    by_template: dict[str, list[Json]] = {}
    for text in done.stdout.removeprefix("---\n").split("\n---\n"):
        if body := yaml.load(text, Loader=yaml.CSafeLoader):
            by_template.setdefault(text.partition("\n")[0].rpartition("/")[2], []).append(body)
    return by_template


def refusal(values: Mapping[str, Any], namespace: str = "cotenant") -> str:
    """What Helm says when it does not render them; empty when it does."""
    done = helm("template", "cotenant", str(chart()), "--namespace", namespace, values=values)
    return done.stderr if done.returncode else ""


def object_of(objects: list[Json], kind: str, name: str) -> Json:
    """The object of a kind and name."""
    (body,) = [o for o in objects if o["kind"] == kind and o["metadata"]["name"] == name]
    return body


def containers(body: Json) -> list[Json]:
    """Containers of a pod template, none for other objects."""
    spec: Any = body.get("spec") or {}
    spec = spec.get("jobTemplate", {}).get("spec", spec)
    inside = spec.get("template", {}).get("spec", {}) if isinstance(spec.get("template"), dict) else {}
    return [*inside.get("initContainers", ()), *inside.get("containers", ())]
