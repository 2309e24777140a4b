"""Dress usage as what cAdvisor and kube-state-metrics export, as OpenMetrics text for promtool to make blocks from.

    write(inventory, usage, file, Dress(interval_seconds=60))
    create_blocks(inventory, usage, folder, Dress(...))     # text, then promtool; `folder`: a Prometheus data folder

Counters are integrals of the usage: a rate over a slot gives the slot's mean back, and one scrape interval inside each
slot runs at the slot's maximum. A gap (NaN) is a stretch without samples in which counters go on. All other dirt is
asked for in `Dress`.

`dress` -> `text` (bytes) -> `writer` (series to lines) -> `cadvisor`, `kube_state` (families) -> `blocks`
"""

from tests.support.openmetrics.blocks import create_blocks, write
from tests.support.openmetrics.dress import Dress

__all__ = ["Dress", "create_blocks", "write"]
