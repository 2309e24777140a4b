"""The closed loop on a live cluster beside the simulated one: the same world and the same jobs, decided twice.

    .venv/bin/python -m bench.closed_loop.closed_loop_live  # 12 nodes, ten hours in ten minutes
    .venv/bin/python -m bench.closed_loop.closed_loop_live --policy forecast  # the same by the manager's own analysis
    .venv/bin/python -m bench.closed_loop.closed_loop_live --minutes 3 --nodes 5      # tries it; records nothing

A step of five minutes takes STEP_SECONDS / speed of wall time. Live are the control plane, kwok's nodes, manager,
webhook, extender and a stock scheduler with its configuration, as `live_cluster` says; what pods use and what node
agents do is the simulation's (`live_play`). Clocks of processes are the machine's: what they count in seconds does not
pass faster, but for two waits that are set (the renewal of amounts, the scheduler's longest pause) and one that an
event ends every step (until it looks again at pods that the extender refused). So the manager analyses history once in
the day, and the simulated loop is given one decision on peaks.

The scheduler takes one of the best nodes by chance. The live run is compared with the mean of DRAWS simulated ones; the
notes have their range, which is what two runs of the same cluster differ by.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from bench.closed_loop.live_cluster import LiveWorld, live_cluster, live_world
from bench.closed_loop.live_play import LivePlay, LoopRecord
from bench.record import Row, below, record
from cotenant.base.kubernetes.protocol import OWN_GROUP
from cotenant.base.progress import Silent
from cotenant.base.resource import MILLICORES_PER_CORE
from cotenant.experiment.accounts import STEP_HOURS, Accounts
from cotenant.experiment.batch_jobs import BatchJobs
from cotenant.experiment.install import FORECAST, USAGE, install_of
from cotenant.experiment.interference import Interference
from cotenant.experiment.lenders import TriedLender, forecast_peaks, lender
from cotenant.experiment.loop import HOUR_STEPS, SharingLoop, jobs_of
from cotenant.experiment.outcome import STEP_SECONDS, Sharing, SharingScenario
from cotenant.experiment.placement import BatchPlacement
from cotenant.experiment.world import SLOTS_PER_DAY, World
from cotenant.forecasting.settings import NodePeakSettings
from cotenant_lab.experiment.worlds import SYNTHETIC
from tests.cluster.api import Api

Floats = npt.NDArray[np.float64]

NAME: Final = "closed_loop_live"
NODES, PODS_A_NODE, MINUTES, SPEED, SEED = 12, 15, 10.0, 60.0, 1
FORECASTS: Final = f"/apis/{OWN_GROUP}/usageforecasts"
WITHIN: Final = 0.1
SHORT: Final = 0.01
DRAWS: Final = 5


class RecordedAccounts(Accounts):
    """Keeps what the simulated loop did on each node."""

    def __init__(self, cluster: World, jobs: BatchJobs, steps: int) -> None:
        """Nothing is entered yet; later steps are not kept."""
        super().__init__(cluster, jobs, Interference())
        self.record = LoopRecord.empty(len(cluster.cores), steps)
        self._steps = steps

    def ended(self, jobs: npt.NDArray[np.intp], step: int) -> None:
        """See Accounts."""
        super().ended(jobs, step)
        self.record.ended += len(jobs) * (step < self._steps)

    def step(self, step: int, needed: Floats, batch: Floats, amounts: dict[str, Floats], evicted: int) -> None:
        """See Accounts."""
        super().step(step, needed, batch, amounts, evicted)
        if step < self._steps:
            columns = {"lent": amounts["offered"], "bound": amounts["bound"], "short": amounts["short"]}
            for name, values in {**columns, "used": batch[0]}.items():
                getattr(self.record, name)[:, step] = values
            self.record.evicted += evicted


def lending_of(cluster: World, policy: str) -> TriedLender:
    """What the live manager lends by: present usage, or the peaks that its analysis forecasts at the first step.

    The manager analyses once an hour of wall time, so that the day has one decision on peaks.
    """
    install = install_of(policy)
    if policy == USAGE:
        return lender(cluster, Sharing.KOORDINATOR, float(install.strategy.cpu_reclaim_percent), {})
    settings = NodePeakSettings()
    decided = forecast_peaks(cluster, [settings.risk_percent], settings, Silent())
    first = {
        r: {risk: {k: np.repeat(v[:, :1], v.shape[1], axis=1) for k, v in of.items()} for risk, of in risks.items()}
        for r, risks in decided.items()
    }
    return lender(cluster, Sharing.COTENANT, settings.risk_percent, first)


def simulated(cluster: World, jobs: BatchJobs, steps: int, policy: str, draw: int) -> LoopRecord:
    """The first steps of the loop; draw: of the scheduler's choices among equal nodes."""
    install = install_of(policy)
    loop, accounts = (
        SharingLoop(cluster, jobs, lending_of(cluster, policy), install),
        RecordedAccounts(cluster, jobs, steps),
    )
    loop.placing = BatchPlacement(len(cluster.cores), install, np.random.default_rng([cluster.scenario.seed, 3, draw]))
    loop.run(accounts, Silent())
    return accounts.record


def core_hours(millicores: Floats) -> float:
    """Of columns by step."""
    return float(millicores.sum()) * STEP_HOURS / MILLICORES_PER_CORE


def measures(loop_record: LoopRecord) -> dict[str, tuple[float, str]]:
    """What is compared, with units."""
    return {
        "batch-cpu lent": (core_hours(loop_record.lent), "core-hours"),
        "batch-cpu of the pods that run": (core_hours(loop_record.bound), "core-hours"),
        "batch work": (core_hours(loop_record.used), "core-hours"),
        "batch jobs done": (loop_record.ended, "jobs"),
    }


def difference(value: float, expected: float) -> float:
    """As a share of what is expected; 1 where nothing is and something came."""
    return round(abs(value - expected) / (expected or value or 1.0), 4)


def rows(live: LoopRecord, draws: Sequence[LoopRecord], note: str) -> Iterator[Row]:
    """The live run by the mean of the simulated ones; what those differ among themselves stands in the notes."""
    expected = draws[0].lent  # what is lent does not depend on the draw
    distance = np.abs(live.lent - expected).sum() / (expected.sum() or live.lent.sum() or 1.0)
    yield below("batch-cpu by node and step, mean difference / mean", round(float(distance), 4), "ratio", WITHIN, note)
    of_draws = [measures(draw) for draw in draws]
    for name, (value, unit) in measures(live).items():
        values = [draw[name][0] for draw in of_draws]
        mean = float(np.mean(values))
        comparison = f"live {value:.4g} {unit}, simulated {mean:.4g} ({min(values):.4g} to {max(values):.4g})"
        yield below(f"{name}, difference / simulated", difference(value, mean), "ratio", WITHIN, comparison)
    shorts = [float(draw.short.mean()) for draw in draws]
    short = float(live.short.mean())
    comparison = f"live {short:.4f}, simulated {np.mean(shorts):.4f} ({min(shorts):.4f} to {max(shorts):.4f})"
    yield below(
        "node-time short, difference", round(abs(short - float(np.mean(shorts))), 4), "of node-time", SHORT, comparison
    )
    comparison = f"live {live.evicted}, simulated {min(d.evicted for d in draws)} to {max(d.evicted for d in draws)}"
    yield Row("batch pods evicted for memory", live.evicted, "pods", note=comparison)
    yield Row("steps that took longer than their wall time", live.late, "steps", note=f"of {live.lent.shape[1]}")


@dataclass(slots=True)
class WallPace:
    """Ends each step when its share of wall time is over; counts the steps that took longer."""

    step_seconds: float
    begun_seconds: float | None = None

    def __call__(self, step: int, so_far: LoopRecord) -> None:
        """Sleeps until the step's end."""
        if self.begun_seconds is None:
            self.begun_seconds = time.monotonic()
        remaining = self.begun_seconds + (step + 1) * self.step_seconds - time.monotonic()
        so_far.late += remaining < 0
        time.sleep(max(remaining, 0.0))


def played(live: LiveWorld, folder: Path, steps: int, policy: str, speed: float) -> LoopRecord:
    """The live run. Under policy `forecast` it begins when the manager has analysed the history."""
    with live_cluster(live, folder, policy, speed) as plane:
        api = plane.api()
        play = LivePlay(live, jobs_of(live.cluster), api)
        play.begin(lambda: decided(api, live, policy))
        return play.run(steps, WallPace(STEP_SECONDS / speed), tell)


def decided(api: Api, live: LiveWorld, policy: str) -> bool:
    """Whether the manager's analysis has ended, where the policy rests on it."""
    return policy == USAGE or len(api.items(FORECASTS)) == len(live.nodes)


def tell(step: int, so_far: LoopRecord) -> None:
    """One line a simulated hour."""
    if step % HOUR_STEPS == HOUR_STEPS - 1:
        lent, bound, used = (getattr(so_far, n)[:, step].sum() / MILLICORES_PER_CORE for n in ("lent", "bound", "used"))
        print(f"hour {step // HOUR_STEPS + 1}: {lent:.1f} cores lent, {bound:.1f} bound, {used:.1f} used", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of wall time; fewer record nothing")
    parser.add_argument("--speed", type=float, default=SPEED, help="simulated seconds a second")
    parser.add_argument("--policy", choices=(USAGE, FORECAST), default=USAGE, help="of CPU and memory")
    parser.add_argument("--nodes", type=int, default=NODES, help="at most 50; fewer record nothing")
    parser.add_argument("--logs", type=Path, help="a folder that keeps what all processes wrote")
    options = parser.parse_args()
    steps = int(options.minutes * 60 * options.speed / STEP_SECONDS)
    days = -(-steps // SLOTS_PER_DAY)
    live = live_world(SharingScenario(SYNTHETIC, options.nodes, options.nodes * PODS_A_NODE, days, SEED))
    with tempfile.TemporaryDirectory() as folder:
        of_live = played(live, options.logs or Path(folder), steps, options.policy, options.speed)
    draws = [simulated(live.cluster, jobs_of(live.cluster), steps, options.policy, draw) for draw in range(DRAWS)]
    note = f"{options.nodes} nodes, {steps} steps at {options.speed:g}x; load of the machine {os.getloadavg()[1]:.1f}"
    measured = list(rows(of_live, draws, note))
    name = NAME if options.policy == USAGE else f"{NAME}_{options.policy}"
    changed = [f"--{key} {value}" for key, value in vars(options).items() if value != parser.get_default(key)]
    command = " ".join(
        [f".venv/bin/python -m bench.{NAME}", *(argument for argument in changed if not argument.startswith("--logs"))]
    )
    record(name, command, measured, is_kept=options.minutes >= MINUTES and options.nodes >= NODES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
