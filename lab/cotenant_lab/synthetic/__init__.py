"""A seeded synthetic cluster for the demo, tests and benchmarks.

`archetypes` (what kinds of workload there are) -> `fleet` (who exists) -> `patterns` (how their load moves) ->
`lifetimes` (from when to when) -> `size` (how much they request) -> `placement` (on which node) -> `demand` (how much
they use) -> `cluster` (the result).
Pure: the same `SyntheticSpec` gives the same bytes, whatever the machine's clock says.
"""

from cotenant_lab.synthetic.cluster import generate
from cotenant_lab.synthetic.spec import MemoryShape, Shape, SyntheticCluster, SyntheticSpec, Truth

__all__ = ["MemoryShape", "Shape", "SyntheticCluster", "SyntheticSpec", "Truth", "generate"]
