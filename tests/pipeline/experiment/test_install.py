"""What `cotenant simulate` calls an install is what the shipped defaults make of a switched-on policy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cotenant.base.progress import Silent
from cotenant.base.resource import Resource
from cotenant.experiment.batch_jobs import KINDS
from cotenant.experiment.install import FORECAST, USAGE, install_of
from cotenant.experiment.lenders import forecast_peaks
from cotenant.experiment.placement import BatchPlacement, PlacementLoad
from cotenant.forecasting.settings import NodePeakSettings
from cotenant.scheduler_ext.extender.settings import ExtenderSettings
from tests.pipeline.experiment.small_worlds import small_world


@pytest.mark.parametrize(("policy", "cpu", "memory"), [(USAGE, 65, 70), (FORECAST, 95, 95)])
def test_an_install_has_the_thresholds_of_its_policy(policy: str, cpu: int, memory: int) -> None:
    install = install_of(policy)
    thresholds = install.agents
    assert thresholds.enable and install.strategy.enable
    assert (thresholds.cpu_suppress_threshold_percent, thresholds.memory_evict_threshold_percent) == (cpu, memory)
    # nobody has to change the extender's settings
    assert install.extender == ExtenderSettings()


@pytest.mark.parametrize(("policy", "taken"), [(USAGE, 0), (FORECAST, 1)])
def test_a_busy_node_takes_what_a_forecast_lends_and_not_what_a_percentage_lends(policy: str, taken: int) -> None:
    kind = 0
    cpu, memory = KINDS[kind]
    # 70 % of the node are used, and there is room for the pod in what is lent
    load = PlacementLoad(
        capacity=np.array([[32_000.0], [128 * 2**30]]),
        used=np.array([[22_400.0], [0.0]]),
        offered=np.array([[float(cpu)], [float(memory)]]),
        bound=np.zeros((2, 1)),
        suppressed=np.zeros(1),
    )
    placing = BatchPlacement(1, install_of(policy), np.random.default_rng(0))
    pods, _ = placing.places(np.array([kind]), load, 1_790_000_000.0)
    assert len(pods) == taken


def test_memory_is_lent_at_the_risk_of_an_install() -> None:
    cluster, settings = small_world(nodes=1), NodePeakSettings()
    both = forecast_peaks(cluster, (settings.risk_percent, settings.memory_risk_percent), settings, Silent())
    alone = forecast_peaks(cluster, (settings.memory_risk_percent,), settings, Silent())
    cpu, memory = both[Resource.CPU], both[Resource.MEMORY]
    assert set(cpu) == set(memory) == {settings.risk_percent, settings.memory_risk_percent}
    # the lower risk is the same whatever is asked beside it, of both resources
    for resource in Resource:
        expected = alone[resource][settings.memory_risk_percent]["prod_peak"]
        assert np.array_equal(both[resource][settings.memory_risk_percent]["prod_peak"], expected)


def test_the_oldest_pod_with_a_node_goes_first_whatever_its_kind() -> None:
    # room for one small pod on the first node, for one of any kind on the second
    small, large = (np.array([kind], dtype=np.float64).T for kind in (KINDS[0], KINDS[2]))
    load = PlacementLoad(
        capacity=np.array([[32_000.0] * 2, [128 * 2**30] * 2]),
        used=np.zeros((2, 2)),
        offered=np.hstack([small, large]),
        bound=np.zeros((2, 2)),
        suppressed=np.zeros(2),
    )
    placing = BatchPlacement(2, install_of(FORECAST), np.random.default_rng(0))
    pods, nodes = placing.places(np.array([1, 2, 0]), load, 1_790_000_000.0)
    # the medium pod takes the second node, and the large one behind it would have to ask anew
    assert (pods.tolist(), nodes.tolist()) == ([0], [1])
    medium = np.array(KINDS[1], dtype=np.float64)
    load = replace(load, bound=np.stack([np.zeros(2), medium], axis=1))
    # asked anew, no node has room for the large pod: it is passed over, and the small one takes what is left
    pods, nodes = placing.places(np.array([2, 0]), load, 1_790_000_000.0)
    assert (pods.tolist(), nodes.tolist()) == ([1], [0])
