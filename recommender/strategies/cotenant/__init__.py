"""Strategy `cotenant`: CPU requests for the busy hours, memory requests above the highest usage, each with its reasons.

CPU request = the largest of these, + margin: a quantile of one pod's demand (over the whole window, moved half-way
towards the decaying histogram's if demand rose); the half hour that is busy on most days and the hour that is busy
every week, if they stand out (so that a nightly job or a Monday peak is covered, but a single burst is not). It is
projected over the next days if demand grows weekly, and is that of the highest pod if replicas are uneven. The margin
is a share of the demand + the root of demand x an amount, because small containers burst more. Demand is usage +
throttled without the start-up phase: neither throttling by a low quota nor the warm-up of a process distorts the
request. Memory request = the highest working set ever measured (5-minute maxima, start-up included) + margin. An OOM
kill raises it at once to max(limit at the kill + 100 MiB, x 1.2), however short the history (raises only; a cut needs
the full history); there is no cut while memory leaks. Limits reserve no capacity, so a lower one frees nothing and can
throttle or kill. They stay unless they must rise (memory to the new request, CPU above the highest demand ever
measured), and a missing limit stays missing. If request = limit must be kept (Guaranteed, and not best effort by its
label), the request stays equal to its limit. With `lower_limits` limits follow: memory to the request, CPU in its
ratio.

Then these rules apply: the pod's minimum, the allowed sizes, the workload's annotations, the dead band (small changes
are left out), the autoscaler (request and target solved together), the QoS class, LimitRange, node size and quota. Each
rule that changes the amount leaves a `Clamp`.

One file per rule: `annotations` and `policy` (options of the workload), `pods`, `trend`, `jobs`, `daemons` and `demand`
(columns over all containers), `withhold`, `size`, `autoscaler`, `bounds` (one workload), `grade`, `strategy` (all
together).
"""

from cotenant.recommender.strategies.cotenant.strategy import Cotenant

__all__ = ["Cotenant"]
