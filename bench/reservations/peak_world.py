"""A service with a daily peak: world of the reservations' bench, on a `ClusterShape` that jobs keep full. Pure.

40 nodes of 16 cores. The service's pods request 2 cores and are scaled for 70 % of that; as many as its median needs
run at all times, and the pods above them are its peak pods. Demand: 20 cores, and a bump of 20 more in the evening
whose hour, width and height wander from day to day, six tenths of it at the week-end, 3 % of noise; on one day in ten
a flash crowd of ten cores for an hour, at any hour. The same seed gives the same service.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from cotenant.base.identity import WorkloadRef
from cotenant.scheduler_ext.reservations.plans.proposals import Size
from cotenant_lab.simulation.peaks.peak_cluster import DAY_SLOTS, ClusterShape, Floats

CLUSTER: Final = ClusterShape(40, 16.0)
POD_CORES: Final = 2.0
TARGET: Final = 0.7
"""Of a pod's request, at which its autoscaler adds another."""
MEAN, BUMP, CROWD = 20_000.0, 20_000.0, 10_000.0
"""Millicores: at all times, at the top of the daily peak, of a flash crowd."""
MONDAY_SECONDS: Final = 1_800_000_000 // 604_800 * 604_800 + 4 * 86_400
"""A Monday's midnight, UTC: the Epoch was a Thursday."""


def demand_of(seed: int, days: int) -> Floats:
    """Millicores of the service in slots of five minutes from a Monday's midnight on, (days * 288,)."""
    rng = np.random.default_rng([seed, 7])
    hour = np.arange(DAY_SLOTS) / 12
    values = np.full((days, DAY_SLOTS), MEAN)
    for day in range(days):
        middle, width, height = rng.normal(18.5, 0.5), rng.uniform(1.2, 1.8), BUMP * np.exp(0.1 * rng.normal())
        weekend = 0.6 if day % 7 >= 5 else 1.0
        values[day] += weekend * height * np.exp(-0.5 * ((hour - middle) / width) ** 2)
        if rng.random() < 0.1:
            first = int(rng.integers(0, DAY_SLOTS - 12))
            values[day, first : first + 12] += CROWD
    noisy: Floats = values.ravel() * (1 + 0.03 * rng.standard_normal(days * DAY_SLOTS))
    return noisy


def size_of(demand: Floats, seed: int) -> Size:
    """What the pods of a seed's service are: the median of its history runs anyway, in whole pods."""
    capacity = POD_CORES * 1000 * TARGET
    running = float(np.ceil(np.median(demand) / capacity))
    requests = {"cpu": f"{POD_CORES:g}"}
    workload = WorkloadRef("shop", "Deployment", f"web-{seed}")
    return Size(workload, requests, int(POD_CORES * 1000), capacity, running * capacity)
