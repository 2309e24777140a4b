"""Every non-action has a reason, and every reason a sentence: shown to people, exported as a metric label.

Adding a member here without a sentence in `SENTENCES` fails a test; so does a reason that the docs do not list.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Why a value is what it is, or why there is none."""

    OK = "ok"
    # no value at all
    NO_DATA = "no-data"
    NOT_ENOUGH_HISTORY = "not-enough-history"
    LOW_COVERAGE = "low-coverage"
    HISTORY_INCOMPLETE = "history-incomplete"
    OWNER_UNKNOWN = "owner-unknown"
    PODS_UNNAMED = "pods-unnamed"
    AMOUNTS_UNKNOWN = "amounts-unknown"
    KILLS_UNKNOWN = "kills-unknown"
    AUTOSCALER_UNKNOWN = "autoscaler-unknown"
    ANNOTATIONS_UNKNOWN = "annotations-unknown"
    LIMIT_RANGE_UNKNOWN = "limit-range-unknown"
    SEVERAL_TEMPLATES = "several-templates"
    POD_AMOUNTS = "pod-amounts"
    HPA_ON_RESOURCE = "hpa-on-resource"
    HPA_UNSOLVED = "hpa-unsolved"
    EXCLUDED = "excluded"
    DELETED = "deleted"
    BEST_EFFORT = "best-effort"
    IMPLAUSIBLE = "implausible"
    UNMEASURED = "unmeasured"
    CPU_UNMEASURED = "cpu-unmeasured"
    POD_USES_MORE = "pod-uses-more"
    PART_UNMEASURED = "part-unmeasured"
    NODE_USES_MORE = "node-uses-more"
    SWAP_UNKNOWN = "swap-unknown"
    PAGE_CACHE = "page-cache"
    STALE = "stale"
    FAILED = "failed"
    # a value that a rule other than the percentile decided
    OOM_BUMP = "oom-bump"
    FLOOR = "floor"
    OBSERVED_MAXIMUM = "observed-maximum"
    WITHIN_DEAD_BAND = "within-dead-band"
    TREND = "trend"
    SIBLING = "sibling"
    LEAK = "leak"
    QOS_CLASS = "qos-class"
    WHOLE_CORES = "whole-cores"
    LIMIT_KEPT = "limit-kept"
    HPA_SOLVED = "hpa-solved"
    ANNOTATION = "annotation"
    SPEC_LADDER = "spec-ladder"
    HEAP = "heap"
    LIMIT_RANGE = "limit-range"
    NODE_SIZE = "node-size"
    QUOTA = "quota"
    # reclaimable capacity
    METRIC_MISSING = "metric-missing"
    METRIC_EXPIRED = "metric-expired"
    METRIC_AHEAD = "metric-ahead"
    METRIC_INCOMPLETE = "metric-incomplete"
    METRIC_IMPLAUSIBLE = "metric-implausible"
    PAST_BY_FORECAST = "past-by-forecast"
    PAST_NOT_MEASURED = "past-not-measured"
    COLOCATION_OFF = "colocation-off"
    # forecasts
    NO_PEAK = "no-peak"
    FROM_PORTRAIT = "from-portrait"
    SHORT_RECORD = "short-record"
    FEW_TESTED_DAYS = "few-tested-days"
    # reservation plans
    NO_WINDOW = "no-window"
    NO_SKILL = "no-skill"
    UNCOVERED = "uncovered"
    # pods that wait for their quota
    QUOTA_EXCEEDED = "quota-exceeded"
    PARENT_QUOTA_EXCEEDED = "parent-quota-exceeded"
    QUOTA_MIN_EXCEEDED = "quota-min-exceeded"
    ABOVE_QUOTA_MAX = "above-quota-max"
    ABOVE_QUOTA_MIN = "above-quota-min"
    BEHIND_IN_QUOTA = "behind-in-quota"
    QUOTA_INVALID = "quota-invalid"
    # gangs
    GANG_INVALID = "gang-invalid"
    GANG_INCOMPLETE = "gang-incomplete"
    GANG_WAITS_FOR_QUOTA = "gang-waits-for-quota"
    GANG_NEVER_FITS = "gang-never-fits"
    GANG_NO_CAPACITY_NOW = "gang-no-room-now"
    GANG_BEHIND_ANOTHER = "gang-behind-another"
    GANG_BACKS_OFF = "gang-backs-off"
    GANG_PLACING = "gang-placing"
    GANG_OPENING = "gang-opening"
    GANG_LEFT_TO_SCHEDULER = "gang-left-to-scheduler"
    # pods and nodes that a rebalance leaves as they are
    NO_NODE_HIGH = "no-node-high"
    NO_NODE_ABNORMAL = "no-node-abnormal"
    NO_NODE_LOW = "no-node-low"
    TOO_FEW_NODES_LOW = "too-few-nodes-low"
    ALL_NODES_LOW = "all-nodes-low"
    REBALANCE_PAUSED = "rebalance-paused"
    POD_LEAVING = "pod-leaving"
    POD_STUCK = "pod-stuck"
    STATIC_POD = "static-pod"
    DAEMON_POD = "daemon-pod"
    PLACEHOLDER_POD = "placeholder-pod"
    POD_NOT_SELECTED = "pod-not-selected"
    NO_CONTROLLER = "no-controller"
    EVICTION_COST = "eviction-cost"
    SYSTEM_CRITICAL = "system-critical"
    LOCAL_STORAGE = "local-storage"
    VOLUME_CLAIM = "volume-claim"
    VOLUME_ON_NODE = "volume-on-node"
    VOLUME_UNKNOWN = "volume-unknown"
    STARTED_LATELY = "started-lately"
    POD_UNMEASURED = "pod-unmeasured"
    NOTHING_GAINED = "nothing-gained"
    DISRUPTION_BUDGET = "disruption-budget"
    NODE_MOVE_LIMIT = "node-move-limit"
    WORKLOAD_MOVE_LIMIT = "workload-move-limit"
    NAMESPACE_MOVE_LIMIT = "namespace-move-limit"
    MOVE_LIMIT = "move-limit"
    OVERLOAD_ENDS_FIRST = "overload-ends-first"
    MOVE_DOES_NOT_PAY = "move-does-not-pay"
    NO_NODE_FITS = "no-node-fits"
    TARGETS_TOO_FULL = "targets-too-full"
    TARGETS_USED_UP = "targets-used-up"
    MOVE_UNDER_WAY = "move-under-way"
    CHURN_LIMIT = "churn-limit"
    WORKLOAD_MOVED_LATELY = "workload-moved-lately"
    # nodes that are not emptied
    PODS_WAIT = "pods-wait"
    LOAD_RISES = "load-rises"
    PEAK_NOT_COVERED = "peak-not-covered"
    NO_NODE_UNDER_USED = "no-node-under-used"
    NO_NODE_CAN_BE_EMPTIED = "no-node-can-be-emptied"
    NODES_BUSY = "nodes-busy"
    EMPTYING_LIMIT = "emptying-limit"
    EMPTYING_OFF = "emptying-off"
    UNDER_USED = "under-used"
    MOVE_FAILED = "move-failed"
    TWO_BUDGETS = "two-disruption-budgets"
    FORECAST_MISSING = "forecast-missing"
    NO_OTHER_PLACE = "no-other-place"
    RULE_NOT_MODELLED = "rule-not-modelled"
    EVICTION_FORBIDDEN = "eviction-forbidden"
    CONTROL_PLANE_NODE = "control-plane-node"
    BATCH_WORK = "batch-work"
    # accepted ladders: why the next step is not taken
    LADDER_NO_VERDICT = "ladder-no-verdict"
    LADDER_STEP_ENDED = "ladder-step-ended"
    LADDER_OTHER_WRITER = "ladder-other-writer"
    LADDER_RECOMMENDATION_ROSE = "ladder-recommendation-rose"
    LADDER_WITHHELD = "ladder-withheld"
    LADDER_RESULTS_OLD = "ladder-results-old"
    LADDER_GUARDRAIL = "ladder-guardrail"
    LADDER_REFUSED = "ladder-refused"
    LADDER_PAUSED = "ladder-paused"
    LADDER_PERSON = "ladder-person"
    LADDER_QUEUE_FULL = "ladder-queue-full"
    # workloads that the autopilot leaves as they are
    AUTOPILOT_PAUSED = "autopilot-paused"
    AUTOPILOT_STOPPED = "autopilot-stopped"
    AUTOPILOT_CLUSTER_IN_TROUBLE = "autopilot-cluster-in-trouble"
    AUTOPILOT_NEVER_TOUCHED = "autopilot-never-touched"
    AUTOPILOT_TWO_POLICIES = "autopilot-two-policies"
    AUTOPILOT_OTHER_WRITER = "autopilot-other-writer"
    AUTOPILOT_KEPT_BY_GITOPS = "autopilot-kept-by-gitops"
    AUTOPILOT_NOTHING_ALLOWED = "autopilot-nothing-allowed"
    AUTOPILOT_UNCERTAIN = "autopilot-uncertain"
    AUTOPILOT_GUARDRAIL = "autopilot-guardrail"
    AUTOPILOT_CHANGE_UNDER_WAY = "autopilot-change-under-way"
    AUTOPILOT_COOL_DOWN = "autopilot-cool-down"
    AUTOPILOT_BACKS_OFF = "autopilot-backs-off"
    AUTOPILOT_GIVEN_UP = "autopilot-given-up"
    AUTOPILOT_OUTSIDE_WINDOW = "autopilot-outside-window"
    AUTOPILOT_NO_WAY_LEFT = "autopilot-no-way-left"
    AUTOPILOT_REFUSED = "autopilot-refused"
    AUTOPILOT_QUEUE_FULL = "autopilot-queue-full"


SENTENCES: dict[Reason, str] = {
    Reason.OK: "Computed from the observed history.",
    Reason.NO_DATA: "No usage sample was found for this container in the window.",
    Reason.NOT_ENOUGH_HISTORY: "The history is shorter than the strategy asks for.",
    Reason.LOW_COVERAGE: "Too many samples are missing in the window to trust a value.",
    Reason.OWNER_UNKNOWN: "The source does not say who owns these pods, or who owns their owner: they may be a part of a larger workload.",
    Reason.PODS_UNNAMED: "Pods without a known owner used resources here, so the measured usage of this workload may be incomplete.",
    Reason.AMOUNTS_UNKNOWN: "The source has no requests and limits of the containers, so a change cannot be assessed.",
    Reason.KILLS_UNKNOWN: "The source does not report OOM kills, so memory is not lowered.",
    Reason.AUTOSCALER_UNKNOWN: "An autoscaler may scale this workload, and the source does not report which one or by which metric.",
    Reason.ANNOTATIONS_UNKNOWN: "The source has annotations of other workloads of this kind but not of this one: an annotation may exclude it or bound its values.",
    Reason.LIMIT_RANGE_UNKNOWN: "A LimitRange applies here, and the source does not report its bounds: the API server may refuse a change.",
    Reason.SEVERAL_TEMPLATES: "Pods of one owner differ in their role or their requests, and this container is in several kinds of them.",
    Reason.POD_AMOUNTS: "The pod sets spec.resources, which counts instead of its containers' amounts: changing those frees nothing.",
    Reason.HISTORY_INCOMPLETE: "Part of the history could not be read from its source; nothing is lowered until a scan reads it.",
    Reason.HPA_ON_RESOURCE: "A HorizontalPodAutoscaler scales on this resource; changing the request alone would move its target.",
    Reason.HPA_UNSOLVED: "A HorizontalPodAutoscaler has a target that cannot be computed together with the request: it is not a utilisation, it is of one container, or there are several targets. Prometheus alone does not say whether a target of pods with several containers is of one container.",
    Reason.EXCLUDED: "An annotation of the workload asks for no recommendation.",
    Reason.DELETED: "The workload is not in the cluster any more, or has had no pod for three days.",
    Reason.BEST_EFFORT: "It requests nothing on purpose (best effort); a request would change its QoS class.",
    Reason.IMPLAUSIBLE: "A figure is larger than any node of the window, or one sample of memory is a thousand times all others: probably a wrong unit, so nothing is proposed.",
    Reason.UNMEASURED: "A running container, or one pod of several, shows no memory at all, which no process can do without: its runtime or its node does not measure it, so nothing is lowered.",
    Reason.CPU_UNMEASURED: "A running container shows no CPU time at all, and no counter shows that it only sleeps: its runtime or its node does not measure it; or no pod lived for ten minutes, so that five-minute rates show too little. CPU is not lowered.",
    Reason.POD_USES_MORE: "A pod uses clearly more than its containers show together: their usage is not measured completely, so this resource is not lowered.",
    Reason.PART_UNMEASURED: "A pod has no sample for more than an hour and a twentieth of its life, while others were measured: it may have used more than any sample shows, so nothing is lowered. A note names the pod.",
    Reason.NODE_USES_MORE: "A node that its pods run on uses clearly more than its system and all containers on it show together: their usage is not measured completely, so nothing is lowered. A note names the node.",
    Reason.SWAP_UNKNOWN: "A node that its pods run on swaps, and it is not known how much of that belongs to them: they may need more than their working set, so memory is not lowered. A note names the node.",
    Reason.PAGE_CACHE: "The working set fills the limit with file pages, which the kernel can reclaim: the rest is less than half of the limit, and nothing was killed. Memory is not raised.",
    Reason.STALE: "The newest sample is too old.",
    Reason.FAILED: "The computation failed for this object; the log names the cause.",
    Reason.OOM_BUMP: "The container was killed for lack of memory: the memory it had then, plus a margin, decides.",
    Reason.FLOOR: "The computed value was below the configured minimum.",
    Reason.OBSERVED_MAXIMUM: "Kept at the highest observed value plus its margin.",
    Reason.WITHIN_DEAD_BAND: "The change is too small to be worth a restart.",
    Reason.TREND: "Usage grows from week to week; the value is projected to the next days.",
    Reason.SIBLING: "Raised to what a sibling requests: a workload of the same namespace, kind, container and name, except for its version, that was measured for longer; a person decides whether the value applies here.",
    Reason.LEAK: "Memory grows day by day since the last restart; the present value is kept until the leak is found.",
    Reason.QOS_CLASS: "Request and limit stay equal, so that the pod keeps its QoS class.",
    Reason.WHOLE_CORES: "Rounded up to whole cores: pods of the classes LSR and LSE are bound to CPUs of their own.",
    Reason.LIMIT_KEPT: "The present limit stays: a lower one frees nothing that the scheduler counts, and can throttle or kill.",
    Reason.HPA_SOLVED: "Decided together with the autoscaler's target: it scales at the same usage per pod as before.",
    Reason.ANNOTATION: "Limited by a bound that an annotation of the workload sets.",
    Reason.HEAP: "Sized together with the heap of the runtime inside: the heap and the measured memory beside it have to fit.",
    Reason.SPEC_LADDER: "Rounded up to the next size in the settings.",
    Reason.LIMIT_RANGE: "Limited by a bound of the namespace's LimitRange.",
    Reason.NODE_SIZE: "Limited to what the largest node can give a pod beside its daemons; for a daemon, to what the smallest of its nodes can give.",
    Reason.QUOTA: "Limited to what the namespace's ResourceQuota has left. Other workloads may use that too: the review counts all of them together.",
    Reason.METRIC_MISSING: "The node reports no metric; nothing is reclaimed.",
    Reason.METRIC_EXPIRED: "The node's metric is too old; once the manager has seen no update for degradeTimeMinutes, nothing is reclaimed.",
    Reason.METRIC_AHEAD: "The node's report has a time in the future, so its age is unknown; nothing is changed until degradeTimeMinutes have passed, then nothing is reclaimed. Set the clock of the node, or of the program that reports it.",
    Reason.METRIC_INCOMPLETE: "The node's report lacks the node's usage, which does not mean zero; nothing is changed until degradeTimeMinutes have passed, then nothing is reclaimed.",
    Reason.METRIC_IMPLAUSIBLE: "The node's report says that more is used than the node has, which is an error of its source; nothing is changed until degradeTimeMinutes have passed, then nothing is reclaimed.",
    Reason.PAST_BY_FORECAST: "What the node could have lent in past hours rested on the forecasts of those hours, which are not kept: these hours are not drawn.",
    Reason.PAST_NOT_MEASURED: "The node was not measured in some past hours, so what it could have lent is unknown: these hours are not drawn.",
    Reason.COLOCATION_OFF: "Colocation is not enabled for this node; nothing is reclaimed.",
    Reason.NO_PEAK: "No pronounced peak in the next 24 hours: usage is even, or too few of the last days had a peak.",
    Reason.FROM_PORTRAIT: "Not enough history to test a forecast; quantiles of past usage are shown.",
    Reason.NO_WINDOW: "No future window is forecast to need more pods than the baseline.",
    Reason.NO_SKILL: "Forecasts of this workload were no better than the same time last week.",
    Reason.UNCOVERED: "Even the best quantile would have covered too little of its past peaks.",
    Reason.GANG_INVALID: "The gang's definition is not valid; the wrong value is named.",
    Reason.GANG_INCOMPLETE: "Fewer members of the gang exist than must start together.",
    Reason.GANG_WAITS_FOR_QUOTA: "The gang is complete; its quota does not admit all of it yet.",
    Reason.GANG_NEVER_FITS: "The gang would not fit even if all nodes were empty.",
    Reason.GANG_NO_CAPACITY_NOW: "There is no capacity for the gang at the moment; nothing is reserved for it meanwhile.",
    Reason.GANG_BEHIND_ANOTHER: "Another gang is being placed, and the two do not fit side by side.",
    Reason.GANG_BACKS_OFF: "The last attempt to place the gang failed; it is tried again after a pause.",
    Reason.GANG_PLACING: "Capacity for the gang is being reserved, member by member; none starts before all have it.",
    Reason.GANG_OPENING: "Capacity for the whole gang is reserved and is being handed over.",
    Reason.GANG_LEFT_TO_SCHEDULER: "Kubernetes' own gang scheduling has the gang and has not placed it yet.",
    Reason.QUOTA_EXCEEDED: "The pod's quota would use more than its runtime, which is its share now, lending included.",
    Reason.PARENT_QUOTA_EXCEEDED: "A quota above the pod's own would use more than its runtime.",
    Reason.QUOTA_MIN_EXCEEDED: "The pod may not be preempted, and such pods of its quota would use more than its min.",
    Reason.ABOVE_QUOTA_MAX: "The pod, or its gang, requests more than the quota's max; it never fits, and blocks no other pod.",
    Reason.ABOVE_QUOTA_MIN: "The pod may not be preempted and requests more than its quota's min; it never fits, and blocks no other pod.",
    Reason.BEHIND_IN_QUOTA: "A pod ahead in the queue of the same quota waits for a resource that this pod requests, too.",
    Reason.QUOTA_INVALID: "The definition of the pod's quota is not valid; correct the quota.",
    Reason.SHORT_RECORD: "The record is too short for a calibrated peak; Koordinator's formula is used instead.",
    Reason.FEW_TESTED_DAYS: "Fewer than three days of decisions were tested; their worst day is not known yet.",
    Reason.NO_NODE_HIGH: "No node uses more than its high threshold.",
    Reason.NO_NODE_ABNORMAL: "Nodes are above their high threshold, but not often enough in a row.",
    Reason.NO_NODE_LOW: "No node is below its low threshold, so no node could take a pod.",
    Reason.TOO_FEW_NODES_LOW: "Too few nodes are below their low threshold: numberOfNodes, or a node that must be relieved, asks for more.",
    Reason.ALL_NODES_LOW: "Every node is below its low threshold.",
    Reason.REBALANCE_PAUSED: "The descheduler's configuration says paused.",
    Reason.POD_LEAVING: "The pod is being deleted.",
    Reason.POD_STUCK: "The pod was deleted and has not ended in its grace period: a finalizer or its node keeps it.",
    Reason.STATIC_POD: "A static pod belongs to its node; no controller would create it elsewhere.",
    Reason.DAEMON_POD: "A DaemonSet's pod runs on every node; it would come back.",
    Reason.PLACEHOLDER_POD: "The pod only holds reserved capacity and uses none.",
    Reason.POD_NOT_SELECTED: "The configuration's namespaces, selectors or priority threshold leave the pod out.",
    Reason.NO_CONTROLLER: "No controller would create the pod again.",
    Reason.EVICTION_COST: "The pod's eviction cost says that it is never moved.",
    Reason.SYSTEM_CRITICAL: "The pod's priority is system critical.",
    Reason.LOCAL_STORAGE: "The pod keeps data on its node that a move would lose.",
    Reason.VOLUME_CLAIM: "The pod has a volume claim, and the configuration leaves such pods alone.",
    Reason.VOLUME_ON_NODE: "No other node can use a volume of the pod: it is local, or in use there by another pod.",
    Reason.VOLUME_UNKNOWN: "The pod has a volume claim that is not bound, or volumes could not be read; it stays.",
    Reason.STARTED_LATELY: "The pod came to its node less than descheduler.pause_seconds ago; it is not moved again so soon.",
    Reason.POD_UNMEASURED: "The node's report has no usage of this pod, so the gain of a move is unknown.",
    Reason.NOTHING_GAINED: "The pod does not use the resource that its node is short of.",
    Reason.DISRUPTION_BUDGET: "A PodDisruptionBudget permits no further eviction now.",
    Reason.NODE_MOVE_LIMIT: "The node has reached maxMigratingPerNode for this round.",
    Reason.WORKLOAD_MOVE_LIMIT: "As many pods of the workload as its limit permits, or all its replicas, are already moving or missing.",
    Reason.NAMESPACE_MOVE_LIMIT: "The namespace has reached maxMigratingPerNamespace for this round.",
    Reason.MOVE_LIMIT: "The round has reached maxMigratingGlobally, or the settings' share of all pods.",
    Reason.OVERLOAD_ENDS_FIRST: "The forecast expects the overload to end before the pod would run elsewhere.",
    Reason.MOVE_DOES_NOT_PAY: "The restart costs more than the move gains.",
    Reason.NO_NODE_FITS: "No node below its low threshold may run the pod and has the capacity that it requests.",
    Reason.TARGETS_TOO_FULL: "Every node that could run the pod would exceed its high threshold, now or at its peak.",
    Reason.TARGETS_USED_UP: "The nodes below their low threshold can take no more usage of some resource.",
    Reason.MOVE_UNDER_WAY: "Another PodMigrationJob moves the pod already.",
    Reason.CHURN_LIMIT: "The settings permit no further move in this hour.",
    Reason.WORKLOAD_MOVED_LATELY: "The workload's object limiter permits no further move yet: enough of its pods were moved recently.",
    Reason.PODS_WAIT: "Pods wait for capacity, so no node is emptied and the marks are removed.",
    Reason.LOAD_RISES: "A node is above its high threshold, now or soon, and no under-used node is left for it; the marks are removed.",
    Reason.PEAK_NOT_COVERED: "The remaining nodes could not carry the load of the next 24 hours below their high thresholds.",
    Reason.NO_NODE_UNDER_USED: "No node stays below its low thresholds, now and at its peak.",
    Reason.NO_NODE_CAN_BE_EMPTIED: "Each under-used node has a pod that cannot leave or that no other node takes.",
    Reason.NODES_BUSY: "Pods are being moved from or to each under-used node; emptying begins after that has ended.",
    Reason.EMPTYING_LIMIT: "maxEmptyingNodes nodes are being emptied already.",
    Reason.EMPTYING_OFF: "The manager's rounds of HighNodeLoad are off or a dry run; marks that it set before are removed.",
    Reason.UNDER_USED: "The node is under-used, all its pods fit elsewhere, and it pays to empty it.",
    Reason.MOVE_FAILED: "A move of the pod has failed, as its PodMigrationJob says; it is tried again after a pause.",
    Reason.TWO_BUDGETS: (
        "The pod has more than one PodDisruptionBudget, which the Eviction API does not support: let one select it."
    ),
    Reason.FORECAST_MISSING: "The node has no forecast, so its future usage is unknown.",
    Reason.NO_OTHER_PLACE: "A pod of the node fits on no other node, in at least one order of placement.",
    Reason.RULE_NOT_MODELLED: "The pod has a placement rule that is not modelled, so it counts as immovable.",
    Reason.EVICTION_FORBIDDEN: "An annotation forbids the eviction of the pod or the removal of the node.",
    Reason.CONTROL_PLANE_NODE: "The node runs the cluster's control plane.",
    Reason.BATCH_WORK: "Batch or mid pods run there on lent capacity, which shrinks in a smaller cluster.",
    Reason.LADDER_NO_VERDICT: "The step before has no verdict yet for its first day; the next step waits for it.",
    Reason.LADDER_STEP_ENDED: "A step of the ladder did harm, was refused, cancelled or rolled back, so no further step is taken.",
    Reason.LADDER_OTHER_WRITER: "Somebody else has changed the workload since the last step, so the ladder ended.",
    Reason.LADDER_RECOMMENDATION_ROSE: "The recommendation is now higher than the next step, so the ladder ended; accept the new recommendation.",
    Reason.LADDER_WITHHELD: "Nothing is recommended now for a field of the next step; it waits for the recommendation.",
    Reason.LADDER_RESULTS_OLD: "The recommendations are missing, or older than the last step; the next step waits for a scan.",
    Reason.LADDER_GUARDRAIL: "A guardrail of accepting stops the next step for now.",
    Reason.LADDER_REFUSED: "The API server refuses the next step for now, or a right to write it is missing.",
    Reason.LADDER_PAUSED: "The autopilot is paused, or its switch cannot be read: no program takes a step.",
    Reason.LADDER_PERSON: "A person stopped the ladder, or rolled steps back.",
    Reason.LADDER_QUEUE_FULL: "The limit of ladder steps, or of CPU, that may change together is reached; the next step waits.",
    Reason.AUTOPILOT_PAUSED: "The autopilot is paused; `cotenant autopilot resume` ends that.",
    Reason.AUTOPILOT_STOPPED: "Too many of the last changes did harm, so the autopilot does nothing until a person resumes it.",
    Reason.AUTOPILOT_CLUSTER_IN_TROUBLE: "Too many nodes are not ready, the operator's own query reports trouble, or the cluster's state is unknown, so nothing is changed.",
    Reason.AUTOPILOT_NEVER_TOUCHED: "The policy, or the cluster's ceiling, leaves such workloads alone.",
    Reason.AUTOPILOT_TWO_POLICIES: "More than one AutopilotPolicy selects the workload; neither is followed.",
    Reason.AUTOPILOT_OTHER_WRITER: "Somebody else writes the same fields; the autopilot leaves the workload alone until a person resumes it.",
    Reason.AUTOPILOT_KEPT_BY_GITOPS: "A GitOps tool manages the workload, and every way that the policy allows would change its manifests; `cotenant autopilot bundle -o ./bundle` writes the step as files.",
    Reason.AUTOPILOT_NOTHING_ALLOWED: "The recommendation changes no resource in a direction that the policy allows.",
    Reason.AUTOPILOT_UNCERTAIN: "The recommendation's confidence is below what the policy asks for.",
    Reason.AUTOPILOT_GUARDRAIL: "A guardrail of accepting stops the change.",
    Reason.AUTOPILOT_CHANGE_UNDER_WAY: "An earlier change of the workload soaks, its outcome is not known yet, or one of its pods starts with extra CPU.",
    Reason.AUTOPILOT_COOL_DOWN: "The workload was changed lately; the next cut waits for the cool-down.",
    Reason.AUTOPILOT_BACKS_OFF: "A change of the workload did harm; it rests, longer after each one.",
    Reason.AUTOPILOT_GIVEN_UP: "Three changes of the workload did harm; it is left alone until a person resumes it.",
    Reason.AUTOPILOT_OUTSIDE_WINDOW: "No change window is open.",
    Reason.AUTOPILOT_NO_WAY_LEFT: "The only ways left restart pods, and the policy allows no further restart this week.",
    Reason.AUTOPILOT_REFUSED: "Accepting refused the change before anything was written; it is tried again later, at last once a day.",
    Reason.AUTOPILOT_QUEUE_FULL: "The limit of changes that soak at the same time is reached.",
}
