"""The node's own reserves."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cotenant.enforcer.contract import Knob, Surface
from cotenant.enforcer.decide.loop import AgentMode, TickDecision
from cotenant.enforcer.decide.unsupported import find_unsupported
from cotenant.enforcer.report.status import status
from cotenant.enforcer.strategies.system import MIN_FREE, SCALE, KernelSettings
from tests.enforcer.readings import EVERY_KNOB, node, observation_of, policy


def test_both_values_by_the_policy() -> None:
    plan = KernelSettings(on=True).step(observation_of(), policy(), None).plan
    # 8 GiB = 8,388,608 KiB; * 100 / 10,000 = 83,886; scale as it stands.
    assert {(w.surface, w.key): w.value for w in plan.surfaces} == {
        (Surface.SYSCTL, MIN_FREE): "83886",
        (Surface.SYSCTL, SCALE): "150",
    }


VENDOR = {
    "memcgReapBackGround": 1,
    "pageCacheLimitEnabled": 1,
    "schedGroupIdentityEnabled": 0,
    "schedIdleSaverWmark": 5_000_000,
    "schedFeatures": {"ID_ABSOLUTE_EXPEL": True, "ID_EXPELLER_SHARE_CORE": False},
}
WRITTEN = {
    "sysfs/kernel/mm/memcg_reaper/reap_background": "1",
    "sysfs/kernel/mm/pagecache_limit/enabled": "1",
    "kernel/sched_group_identity_enabled": "0",
    "kernel/sched_idle_saver_wmark": "5000000",
    "sched_features/ID_ABSOLUTE_EXPEL": "ID_ABSOLUTE_EXPEL",
    "sched_features/ID_EXPELLER_SHARE_CORE": "NO_ID_EXPELLER_SHARE_CORE",
}


def test_vendor_switches_are_written_where_the_kernel_has_them_and_else_named_as_unsupported() -> None:
    rules = policy({"systemStrategy": VENDOR})
    has = {key: "?" for key in WRITTEN if key != "kernel/sched_idle_saver_wmark"}
    moment = observation_of(machine=node(kernel_switches=has))
    plan = KernelSettings(on=True).step(moment, rules, None).plan
    assert {w.key: w.value for w in plan.surfaces if w.key not in (MIN_FREE, SCALE)} == {k: WRITTEN[k] for k in has}
    [missing] = find_unsupported(rules, moment, switches_on=True)
    assert missing.field == "systemStrategy.schedIdleSaverWmark"
    assert "unsupported: this kernel has no kernel/sched_idle_saver_wmark" in missing.why
    off = find_unsupported(rules, moment, switches_on=False)
    assert len(off) == len(WRITTEN)
    assert all("enforcer.kernel_reserves is off" in unsupported.why for unsupported in off)


def test_what_the_policy_does_not_set_leaves_the_kernel_as_it_is() -> None:
    moment = observation_of(machine=node(kernel_switches=dict.fromkeys(WRITTEN, "1")))
    plan = KernelSettings(on=True).step(moment, policy(), None).plan
    assert {w.key for w in plan.surfaces} == {MIN_FREE, SCALE}
    assert find_unsupported(policy(), moment, switches_on=False) == ()


def test_fields_of_classes_that_have_no_effect_here_are_named() -> None:
    rules = policy(
        {
            "resourceQOSStrategy": {
                "policies": {"cpuPolicy": "coreSched", "netQOSPolicy": "tc"},
                "lsClass": {
                    "cpuQOS": {"enable": True},
                    "memoryQOS": {"enable": True, "lowLimitPercent": 50, "pageCacheEnable": True},
                    "networkQOS": {"enable": True, "ingressLimit": 50},
                },
                "beClass": {"blkioQOS": {"enable": True, "blocks": [{"name": "sda", "ioCfg": {"readLatency": 3000}}]}},
            },
            "hostApplications": [{"name": "nginx", "strategy": {"x": 1}}],
        }
    )
    stock = EVERY_KNOB - {Knob.PAGE_CACHE_LIMIT_ENABLE, Knob.MEMORY_WMARK_RATIO, Knob.MEMORY_WMARK_MIN_ADJ}
    prefix = "resourceQOSStrategy.lsClass"
    assert {
        unsupported.field for unsupported in find_unsupported(rules, observation_of(supported=stock), switches_on=True)
    } == {
        f"{prefix}.memoryQOS.pageCacheEnable",
        f"{prefix}.memoryQOS.wmarkRatio",
        f"{prefix}.memoryQOS.wmarkMinAdj",
        f"{prefix}.cpuQOS.coreExpeller",
        f"{prefix}.networkQOS.ingressLimit",
        "resourceQOSStrategy.beClass.blkioQOS",
        "hostApplications[nginx].strategy",
    }
    # the status says it
    shown = status(
        observation_of(),
        TickDecision(mode=AgentMode.ACT),
        {},
        unsupported=find_unsupported(rules, observation_of(), switches_on=True),
    )
    assert [unsupported.field for unsupported in shown.unsupported][:1] == [f"{prefix}.cpuQOS.coreExpeller"]


def test_off_says_nothing() -> None:
    assert KernelSettings().step(observation_of(), policy(), None).plan.surfaces == ()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 10**6), st.integers(1, 400))
def test_a_reserve_never_takes_more_than_a_twentieth(factor: int, scale: int) -> None:
    of = policy({"systemStrategy": {"minFreeKbytesFactor": factor, "watermarkScaleFactor": scale}})
    plan = KernelSettings(on=True).step(observation_of(), of, None).plan
    reserve = {w.key: int(w.value) for w in plan.surfaces}.get(MIN_FREE, 0)
    assert reserve * 20 <= 8_388_608
    assert bool(plan.verdicts) == (factor > 500)
