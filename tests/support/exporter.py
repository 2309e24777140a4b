"""A real Prometheus that holds an hour of one node's node_exporter, with one pod on it."""

from __future__ import annotations

from pathlib import Path

from tests.support.prometheus import Server, blocks_from

EXPORTER_END = 1_790_000_040
"""End of the hour; the newest sample is half a minute older."""
MODES = {"idle": 1.7, "iowait": 0.05, "user": 0.2, "system": 0.05}


def exporter_server(folder: Path, end_seconds: int = EXPORTER_END) -> Server:
    """The server, not yet started."""
    text = folder / "text"
    text.write_text(exporter_text(end_seconds))
    blocks_from(text, folder / "data")
    return Server(folder / "data")


def exporter_text(end_seconds: int = EXPORTER_END) -> str:
    """An hour of node_exporter at 30 s: 2 CPUs, one of them 0.25 busy and 0.05 waiting for a disk; 6 of 8 GB free.

    One pod uses 0.1 cores and 1 GB. Nodes are known by their address only.
    """
    lines = []
    times = range(end_seconds - 3600, end_seconds, 30)
    address = 'instance="10.0.0.1:9100"'
    kubelet = 'instance="10.0.0.1:10250",namespace="shop",pod="web",container="app"'
    families = {
        "node_cpu_seconds": ("counter", {f'{{{address},cpu="0",mode="{m}"}}': r for m, r in MODES.items()}),
        "node_memory_MemTotal_bytes": ("gauge", {f"{{{address}}}": 8e9}),
        "node_memory_MemAvailable_bytes": ("gauge", {f"{{{address}}}": 6e9}),
        "container_cpu_usage_seconds": ("counter", {f"{{{kubelet}}}": 0.1}),
        "container_memory_working_set_bytes": ("gauge", {f"{{{kubelet}}}": 1e9}),
    }
    for name, (kind, series) in families.items():
        lines.append(f"# TYPE {name} {kind}")
        for labels, amount in series.items():
            metric_name = name + ("_total" if kind == "counter" else "")
            values = [amount * (t - times[0]) if kind == "counter" else amount for t in times]
            lines += [f"{metric_name}{labels} {v:.3f} {t}" for v, t in zip(values, times, strict=True)]
    return "\n".join([*lines, "# EOF", ""])
