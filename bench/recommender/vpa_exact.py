"""How far strategy `vpa` and our quantities are from Kubernetes' own code, over seeded random cases.

Builds tools/vpa_reference (Go; VPA's recommender packages as a module dependency) once into the user's cache folder,
asks it the same questions as our code, and records the largest difference. Without Go it says so and records nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from bench.record import ROOT, below, record
from cotenant.base.cluster import Container, Event, EventKind, Inventory, Pod, VpaHistory, Workload
from cotenant.base.errors import QuantityError
from cotenant.base.identity import PodContainerRef, WorkloadRef
from cotenant.base.kube.projection import vpa_history_of
from cotenant.base.kubernetes.models.autoscalers import CheckpointObject
from cotenant.base.kubernetes.quantity import LARGEST, parse_bytes, parse_millicores
from cotenant.base.resource import MIB, Resource
from cotenant.base.usage.usage import Signal, TimeGrid, Usage
from cotenant.recommender.evidence import assemble
from cotenant.recommender.model.recommendation import Field, Recommendation
from cotenant.recommender.settings import RecommenderSettings
from cotenant.recommender.strategies.vpa import Vpa

SOURCE = ROOT / "tools" / "vpa_reference"
STEP = 60  # VPA's own loop: one sample a minute, so that the confidence counts the same samples
END = 1_700_006_400
CASES = 150
QUANTITIES = 100_000
WORKLOAD = WorkloadRef("ns", "Deployment", "w")
SAVED_UNTIL = END - 2000 * STEP
META = {"name": "w-vpa-c", "namespace": "ns"}


def reference() -> Path | None:
    """The built program, from the cache when its sources have not changed."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        return None
    digest = hashlib.sha256(b"".join(p.read_bytes() for p in sorted(SOURCE.iterdir()) if p.is_file())).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cotenant"
    binary = cache / f"vpa_reference-{digest}"
    if not binary.exists():
        cache.mkdir(parents=True, exist_ok=True)
        subprocess.run([go, "build", "-trimpath", "-o", binary, "."], cwd=SOURCE, check=True, timeout=1800)
    return binary


def ask(binary: Path, questions: list[str]) -> list[Any]:
    """One answer a question."""
    out = subprocess.run([binary], input="\n".join(questions).encode(), stdout=subprocess.PIPE, check=True, timeout=600)
    return [json.loads(line) for line in out.stdout.splitlines()]


def usage_case(rng: random.Random) -> dict[str, list[dict[str, list[tuple[int, int]]]]]:
    """Containers of one workload: pods that come and go, gaps, bursts, kills."""
    pods = rng.randint(1, 3)
    lives = [sorted(rng.sample(range(rng.choice([40, 1500, 5000]) + 2), 2)) for _ in range(pods)]
    return {f"c{i}": [_series(rng, first, last) for first, last in lives] for i in range(rng.randint(1, 3))}


def _series(rng: random.Random, first: int, last: int) -> dict[str, list[tuple[int, int]]]:
    sampled_share, level, spread = rng.choice([0.02, 0.3, 1.0]), rng.uniform(0, 9), rng.uniform(0.1, 1.5)
    slots = [s for s in range(first, last + 1) if rng.random() < sampled_share]
    times = [END - 6000 * STEP + s * STEP for s in slots]
    base = rng.uniform(16, 24)
    kills = sorted(
        (END - 6000 * STEP + rng.randint(first, last) * STEP, rng.choice([0, 64, 900, 4000]) * MIB)
        for _ in range(rng.choice([0, 0, 1, 3]))
    )
    return {
        "cpu": [(t, int(rng.lognormvariate(level, spread))) for t in times],
        # multiples of 256 bytes up to 4 GiB, which the float32 of stored history holds exactly
        "memory": [(t, 256 + int(rng.lognormvariate(base, 0.4)) % (2**32 - 256) // 256 * 256) for t in times],
        "kills": kills,
    }


def ours(
    case: dict[str, list[dict[str, list[tuple[int, int]]]]], histories: tuple[VpaHistory, ...] = ()
) -> dict[str, Recommendation]:
    """The same case through evidence and strategy."""
    grid = TimeGrid(END - 6000 * STEP, STEP, 6000)
    containers = tuple(Container(name) for name in case)
    pods = range(len(next(iter(case.values()))))
    refs = tuple(PodContainerRef("ns", f"w-{p}", name) for name in case for p in pods)
    flat = [series for rows in case.values() for series in rows]
    usage = {
        signal: Usage(refs, grid, _matrix(flat, key, grid), signal.spec.resource, signal.spec.statistic)
        for signal, key in ((Signal.CPU_USAGE_MEAN, "cpu"), (Signal.MEMORY_WORKING_SET_MAX, "memory"))
    }
    recorded = _requests(refs, flat, grid)
    events = tuple(
        Event(at, EventKind.OOM_KILL, ref) for ref, series in zip(refs, flat, strict=True) for at, _ in series["kills"]
    )
    inventory = Inventory(
        "bench", END, (), (Workload(WORKLOAD, 1, containers),),
        tuple(Pod("ns", f"w-{p}", WORKLOAD, "n", 0) for p in pods), events, vpa_histories=histories,
    )  # fmt: skip
    evidence = assemble(inventory, grid, usage | {Signal.MEMORY_REQUEST: recorded}, {})
    recommendations = Vpa().recommend(evidence, RecommenderSettings())
    return {r.container.container: r for r in recommendations}


def differences_after_restart(
    case: dict[str, list[dict[str, list[tuple[int, int]]]]], reply: dict[str, Any]
) -> list[tuple[int, int]]:
    """(ours, VPA's) for CPU where both begin with the checkpoints that VPA wrote, and see the samples since alone."""
    targets = {("ns", "w-vpa"): WORKLOAD}
    histories = []
    for name, status in reply["checkpoints"].items():
        body = {"metadata": META, "spec": {"vpaObjectName": "w-vpa", "containerName": name}, "status": status}
        histories.append(vpa_history_of(msgspec.json.decode(json.dumps(body), type=CheckpointObject), targets))
    since = {
        name: [{"cpu": [s for s in pod["cpu"] if s[0] > SAVED_UNTIL], "memory": [], "kills": []} for pod in pods]
        for name, pods in case.items()
    }
    return differences(ours(since, tuple(filter(None, histories))), reply["bounds"], (Resource.CPU,))


def _matrix(flat: list[dict[str, list[tuple[int, int]]]], key: str, grid: TimeGrid) -> Any:
    values = np.full((len(flat), grid.size), np.nan, dtype=np.float32)
    for row, series in enumerate(flat):
        for at, amount in series[key]:
            values[row, grid.index_of(at)] = amount
    return values


def _requests(refs: tuple[PodContainerRef, ...], flat: list[dict[str, list[tuple[int, int]]]], grid: TimeGrid) -> Any:
    """The memory request in force at each kill, as the history of requests tells it."""
    spec = Signal.MEMORY_REQUEST.spec
    return Usage(refs, grid, _matrix(flat, "kills", grid), spec.resource, spec.statistic)


def differences(
    recommendations: dict[str, Recommendation], reply: dict[str, Any], resources: Iterable[Resource] = Resource
) -> list[tuple[int, int]]:
    """(ours, VPA's) for target and bounds of every value that we make."""
    pairs = []
    for name, recommendation in recommendations.items():
        for resource in resources:
            value = recommendation.value(resource, Field.REQUEST)
            if value is None or value.amount is None:
                continue  # no sample: VPA falls back to its minimum, we withhold
            amounts = {
                "target": value.amount,
                "lower": value.inputs["lower_bound"],
                "upper": value.inputs["upper_bound"],
            }
            pairs += [(int(amount), reply[name][bound][resource.value]) for bound, amount in amounts.items()]
    return pairs


def quantity_text(rng: random.Random) -> str:
    """A quantity, or something like one."""
    suffixes = [
        "",
        "n",
        "u",
        "m",
        "k",
        "M",
        "G",
        "T",
        "P",
        "E",
        "Ki",
        "Mi",
        "Gi",
        "Ti",
        "Pi",
        "Ei",
        "e",
        "e5",
        "E-3",
        "e+2",
    ]
    suffixes += ["e-9", "e-10", "e-30", "e30", "e31", "i", "K", "B"]

    def digits() -> str:
        return "".join(rng.choice("0123456789") for _ in range(rng.choice([0, 0, 1, 1, 2, 3, 5, 18, 19, 25])))

    if rng.random() < 0.75:
        number = (
            rng.choice(["", "", "", "+", "-"]) + rng.choice(["", "0"]) + digits() + rng.choice(["", f".{digits()}"])
        )
        return number + rng.choice(suffixes) + rng.choice(["", "", " "])
    return "".join(rng.choice("0123456789.+-eEkKMGTPinum _٣") for _ in range(rng.randint(0, 8)))


def quantity_mismatches(texts: list[str], answers: list[Any]) -> int:
    """Texts where acceptance or value differ, outside the documented caps."""
    wrong = 0
    for text, theirs in zip(texts, answers, strict=True):
        for position, parse in ((0, parse_bytes), (1, parse_millicores)):
            try:
                parsed = parse(text)
            except QuantityError as error:
                capped = "exponent" in error.message or "longer" in error.message
                wrong += not capped and theirs is not None and theirs[2] >= 0
            else:
                wrong += parsed != LARGEST and (theirs is None or theirs[position] != parsed)
    return wrong


def main() -> int:
    """Compare and record."""
    binary = reference()
    if binary is None:
        print("vpa_exact: no Go tool chain was found (apt-get install golang, or https://go.dev/dl); nothing recorded")
        return 0
    rng = random.Random(20)
    cases = [usage_case(rng) for _ in range(CASES)]
    answers = ask(binary, [json.dumps({"containers": case}) for case in cases])
    pairs = [p for case, vpa_reply in zip(cases, answers, strict=True) for p in differences(ours(case), vpa_reply)]
    questions = [json.dumps({"containers": case, "savedUntil": SAVED_UNTIL}) for case in cases]
    saved = [
        p
        for case, reply in zip(cases, ask(binary, questions), strict=True)
        for p in differences_after_restart(case, reply)
    ]
    texts = [quantity_text(rng) for _ in range(QUANTITIES)]
    wrong = quantity_mismatches(texts, ask(binary, [json.dumps({"quantity": t}, ensure_ascii=False) for t in texts]))
    record(
        "vpa_exact",
        ".venv/bin/python -m bench.recommender.vpa_exact",
        [
            below(
                "largest difference to VPA's recommender, relative",
                max(abs(a - b) / max(b, 1) for a, b in pairs),
                "ratio",
                0,
                f"{len(pairs)} bounds of {CASES} random workloads",
            ),
            below("values that differ from VPA's at all", sum(a != b for a, b in pairs), "values", 0),
            below(
                "CPU bounds that differ where both begin with VPA's checkpoint",
                sum(a != b for a, b in saved),
                "values",
                0,
                f"{len(saved)} bounds of {CASES} random workloads; the largest difference "
                f"{max(abs(a - b) / max(b, 1) for a, b in saved):.2g}",
            ),
            below(
                "quantities read differently from apimachinery",
                wrong,
                "quantities",
                0,
                f"{QUANTITIES} random texts, outside the documented caps",
            ),
        ],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
