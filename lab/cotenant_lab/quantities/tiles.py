"""Which quantity each tile of a page shows: the name on the tile -> its key. Tests refuse a tile that is not here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

TILES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "CPU Utilisation": "cluster_cpu_utilisation_ratio",
        "CPU Requests Commitment": "cluster_cpu_requests_commitment_ratio",
        "CPU Limits Commitment": "cluster_cpu_limits_commitment_ratio",
        "Memory Utilisation": "cluster_memory_utilisation_ratio",
        "Memory Requests Commitment": "cluster_memory_requests_commitment_ratio",
        "Memory Limits Commitment": "cluster_memory_limits_commitment_ratio",
        "Free for batch now": "cluster_lendable_now",
        "Free for a day": "cluster_lendable_now",
        "24 h peak, 5 min, p95": "peak",
        "Ready to apply": "recommendations_ready_count",
        "CPU used now": "nodes_cpu_usage",
        "Memory used now": "nodes_memory_usage",
        "Not requested": "cluster_unrequested",
        "Batch pods use": "cluster_batch_usage",
        "Requested": "workloads_cpu_request",
        "Used of it ({…})": "workloads_cpu_used_ratio",
        "p95": "workloads_cpu_p95",
        "Highest": "workloads_cpu_max",
        "Trouble": "workloads_oom_kills",
        "Lent to batch": "what_if_lent_cores",
        "Batch work done": "what_if_batch_core_hours",
        "Node-time short": "what_if_short",
        "p99 of services": "what_if_latency_ratio",
        "Reserved pods": "plan_pods_available",
        "Used": "plan_reservations_used",
        "Most at once": "plan_most_used_count",
        "Waited without a reservation": "plan_most_missed_count",
    }
)
"""A name that is filled in is written with {…}; of a workload's two resources the CPU's key stands for both."""
