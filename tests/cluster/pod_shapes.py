"""Pods by lot that a real API server takes: containers, native sidecars, init containers, own resources, overhead."""

from __future__ import annotations

import random
from typing import Any

STEPS = {"cpu": ["0", "50m", "100m", "1", "1500m"], "memory": ["0", "16Mi", "64Mi", "1Gi"]}
BIG = {"cpu": "8", "memory": "8Gi"}


def amounts(draw: random.Random, *, complete: bool) -> dict[str, Any]:
    """Resources of a container that the server takes; complete: every request and limit is named, and none is 0."""
    resources: dict[str, dict[str, str]] = {"requests": {}, "limits": {}}
    for name, steps in STEPS.items():
        low, high = sorted(draw.choices(range(1 if complete else 0, len(steps)), k=2))
        kind = "both" if complete else draw.choice(["both", "equal", "request", "limit", "none", "none"])
        if kind in ("both", "request"):
            resources["requests"][name] = steps[low]
        if kind in ("both", "limit", "equal"):
            resources["limits"][name] = steps[high]
        if kind == "equal":
            resources["requests"][name] = steps[high]
    return {side: amounts_of_side for side, amounts_of_side in resources.items() if amounts_of_side}


def pod(draw: random.Random, number: int, runtime_class: str, *, complete: bool) -> dict[str, Any]:
    """A pod of containers, init containers and sidecars, some with own resources, some with overhead."""

    def container(kind: str, i: int) -> dict[str, Any]:
        more = {"restartPolicy": "Always"} if kind == "init" and draw.random() < 0.5 else {}
        return {"name": f"{kind}{i}", "image": "x", "resources": amounts(draw, complete=complete), **more}

    spec: dict[str, Any] = {"containers": [container("main", i) for i in range(draw.randint(1, 3))]}
    spec |= {"initContainers": [container("init", i) for i in range(draw.randint(0, 3))]}
    if draw.random() < 0.3:
        own = {"limits": BIG, "requests": {n: BIG[n] for n in draw.sample(["cpu", "memory"], draw.randint(0, 2))}}
        sides = draw.choice([["limits"], ["requests"], ["limits", "requests"]])
        spec["resources"] = {side: own[side] for side in sides}
    if draw.random() < 0.4:
        spec["runtimeClassName"] = runtime_class
    if not complete and draw.random() < 0.2:
        batch_resources = {"kubernetes.io/batch-cpu": "500", "kubernetes.io/batch-memory": "1Gi"}
        spec["containers"] = [
            {"name": "batch", "image": "x", "resources": {"requests": batch_resources, "limits": batch_resources}}
        ]
    return {"metadata": {"name": f"p{number}"}, "spec": spec}
