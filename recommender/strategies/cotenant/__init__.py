"""Strategy `cotenant`: demand of the busy hours, nothing forgotten that hurts, every value with its reasons.

CPU request = the largest of a quantile of one pod's demand (of the whole window, moved half-way to that of the decaying
histogram where demand rose) and, where they stand out, the half hour that is busy on most days and the hour that is
busy every week (so that neither a nightly job nor a Monday peak is lost, and one burst is no habit) + margin; projected
over the next days where it grows from week to week; of the highest pod where replicas are uneven. The margin is a share
of the demand + the root of demand x an amount: what is small bursts more. Demand is usage + throttled without the
start-up phase: a quota that starved the container does not talk the request down, a warm-up does not talk it up.
Memory request = the highest working set ever seen (5-minute maxima, start-up included) + margin; an OOM kill raises it
at once to max(limit at the kill + 100 MiB, x 1.2), however short the history (only a raise; a cut needs the full
history); no cut while memory leaks.
Limits hold no capacity, so a lower one frees nothing and can throttle or kill: they stay unless they must rise (memory
to what the request asks for, CPU above the highest demand ever seen), and absent stays absent. Where request = limit
has to stay (Guaranteed, and not best effort by its label), the request stays with its limit. With `lower_limits` limits
follow: memory to the request, CPU in its ratio.

Then come the floor of the pod, the spec ladder, the workload's annotations, the dead band, the autoscaler (request and
target solved together), the QoS class, LimitRange, node size and quota: what moves the amount leaves a `Clamp`.

One rule a file: `annotations` and `policy` (what holds for the workload), `pods`, `trend`, `jobs`, `daemons` and
`demand` (columns over all containers), `withhold`, `size`, `autoscaler`, `bounds` (one workload), `grade`,
`strategy` (all together).
"""

from cotenant.recommender.strategies.cotenant.strategy import Cotenant

__all__ = ["Cotenant"]
