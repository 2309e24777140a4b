"""The default values of a node's policy, by the names of NodeSLO's JSON.

Source: Koordinator's defaults. What is not named here is unset.
"""

from __future__ import annotations

from typing import Any, Final

_NO_NETWORK: Final[dict[str, Any]] = {
    "enable": False,
    "ingressRequest": 0,
    "ingressLimit": 0,
    "egressRequest": 0,
    "egressLimit": 0,
}


def _class(identity: int, expels: bool, memory: tuple[int, int, int], cache_end_percent: int = 100) -> dict[str, Any]:
    """One class' values; memory: watermark ratio, scale and minimum adjustment."""
    ratio, scale, adjustment = memory
    return {
        "cpuQOS": {"enable": False, "groupIdentity": identity, "schedIdle": 0, "coreExpeller": expels},
        "memoryQOS": {
            "enable": False,
            "minLimitPercent": 0,
            "lowLimitPercent": 0,
            "throttlingPercent": 0,
            "wmarkRatio": ratio,
            "wmarkScalePermill": scale,
            "wmarkMinAdj": adjustment,
            "priorityEnable": 0,
            "priority": 0,
            "oomKillGroup": 0,
        },
        "blkioQOS": {"enable": False},
        "resctrlQOS": {
            "enable": False,
            "catRangeStartPercent": 0,
            "catRangeEndPercent": cache_end_percent,
            "mbaPercent": 100,
        },
        "networkQOS": dict(_NO_NETWORK),
    }


NONE_CLASS: Final = _class(0, False, (0, 50, 0))
"""What a class gets whose feature is off: values that leave the kernel as it is."""

THRESHOLDS: Final[dict[str, Any]] = {
    "enable": False,
    "cpuSuppressThresholdPercent": 65,
    "cpuSuppressPolicy": "cpuset",
    "memoryEvictThresholdPercent": 70,
    "cpuEvictPolicy": "evictByRealLimit",
}
CLASSES: Final[dict[str, Any]] = {
    "policies": {"cpuPolicy": "groupIdentity"},
    "lsrClass": _class(2, True, (95, 20, -25)),
    "lsClass": _class(2, True, (95, 20, -25)),
    "beClass": _class(-1, False, (95, 20, 50), cache_end_percent=30),
    "systemClass": NONE_CLASS,
}
CPU_BURST: Final[dict[str, Any]] = {
    "policy": "none",
    "cpuBurstPercent": 1000,
    "cfsQuotaBurstPercent": 300,
    "cfsQuotaBurstPeriodSeconds": -1,
    "sharePoolThresholdPercent": 50,
}
SYSTEM: Final[dict[str, Any]] = {
    "minFreeKbytesFactor": 100,
    "watermarkScaleFactor": 150,
    "memcgReapBackGround": 0,
    "totalNetworkBandwidth": "0",
}
BUILT_IN: Final[dict[str, Any]] = {
    "resourceUsedThresholdWithBE": THRESHOLDS,
    "resourceQOSStrategy": CLASSES,
    "cpuBurstStrategy": CPU_BURST,
    "systemStrategy": SYSTEM,
}
