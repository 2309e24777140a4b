"""A seeded synthetic cluster for the demo, tests and benchmarks.

`archetypes` (the kinds of workload) -> `fleet` (the workloads) -> `patterns` (the course of their load) -> `lifetimes`
(start and end of pods) -> `size` (requests) -> `placement` (nodes of pods) -> `demand` (usage) -> `cluster` (the
result).

Pure: the same `SyntheticSpec` gives the same bytes, whatever the machine's clock says.
"""

from cotenant_lab.synthetic.cluster import generate
from cotenant_lab.synthetic.spec import MemoryShape, Shape, SyntheticCluster, SyntheticSpec, Truth

__all__ = ["MemoryShape", "Shape", "SyntheticCluster", "SyntheticSpec", "Truth", "generate"]
