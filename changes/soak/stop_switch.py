"""EDGE: reads the switch that stops every program that changes workloads automatically.

It is the key `paused` of ConfigMap `cotenant-autopilot` in the namespace of the manager's Lease.
"""

from __future__ import annotations

from typing import Final

from cotenant.base.kube import KubeClient
from cotenant.base.kubernetes.intent import Address

SWITCH_CONFIG_MAP: Final = "cotenant-autopilot"
"""ConfigMap in `manager.namespace`, the manager's; its key `paused` stops all programs within seconds."""
PAUSED_KEY: Final = "paused"
NOT_PAUSED: Final = "false"
"""The only value of the switch that does not pause; a missing switch does not pause either."""


def read_switch(client: KubeClient, namespace: str) -> str:
    """Return why the switch stops automatic changes; "" if it does not; raise CotenantError if it cannot be read."""
    config_map = client.get(switch_address(namespace).path) or {}
    value = str((config_map.get("data") or {}).get(PAUSED_KEY) or "").strip()
    if value.lower() in ("", NOT_PAUSED):
        return ""
    return f"ConfigMap {namespace}/{SWITCH_CONFIG_MAP} says: {value}"


def switch_address(namespace: str) -> Address:
    """Return the API address of the ConfigMap with the stop switch of automatic changes."""
    return Address("v1", "configmaps", SWITCH_CONFIG_MAP, namespace)
