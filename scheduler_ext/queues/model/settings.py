"""Settings of queues: elastic quotas and gangs by scheduling gates, and who handles their objects."""

from __future__ import annotations

from typing import Annotated, Literal

from cotenant.base.settings.base import Section, setting


class QueueSettings(Section, frozen=True):
    """Settings of quotas and gangs: which pods wait, for how long, and which pods are evicted."""

    enabled: Annotated[
        bool,
        setting(
            "Admit pods of quotas and gangs in order. If false, the manager ignores ElasticQuotas and gangs, and the "
            "webhook gates no pod for them.",
            when="quotas and gangs should be enforced",
        ),
    ] = False
    handled_by: Annotated[
        Literal["cotenant", "koordinator"],
        setting(
            "Who handles ElasticQuotas and gangs: with koordinator, Koordinator's scheduler does; the manager ignores "
            "them and removes the gates that it set.",
            when="Koordinator's scheduler should handle ElasticQuotas and gangs",
        ),
    ] = "cotenant"
    keep_gates_at_end: Annotated[
        bool,
        setting(
            "Keep pods waiting for the next manager if this one stops cleanly (a rollout, a restart); if none starts, "
            "the webhook removes their gates a minute after the end of the time for which the stopped manager promised "
            "to handle them. If false, all waiting pods are admitted at once. An installation in the cluster sets it "
            "to true.",
            when="pods must not bypass their quota during a restart",
        ),
    ] = False
    check_parents: Annotated[
        bool,
        setting(
            "Admit a pod only if it also fits into the runtime of its quota's parent quotas.",
            when="parents' quotas must be respected, too",
        ),
    ] = False
    runtime: Annotated[
        bool,
        setting(
            "Limit a quota to its runtime (its guarantee and what others lend it now); if false, to its max.",
            when="quotas must not lend unused guarantees",
        ),
    ] = True
    min_scaling: bool = True
    """Guarantees (min) shrink in proportion if the cluster has less than their sum, as in Koordinator: the guarantees
    of a cluster that shrank cannot be kept."""
    revoke: Annotated[
        bool,
        setting(
            "Evict pods of a quota that exceeds its runtime for too long, lowest priority first; the manager needs "
            "the right to evict pods.",
            when="quotas must get their lent capacity back",
        ),
    ] = False
    preempt: Annotated[
        bool,
        setting(
            "Evict pods of lower priority for the first pod that waits because their quota is full; the label "
            "preemptible=false protects a pod.",
            when="urgent pods must not wait behind their own quota",
        ),
    ] = False
    delay_evict_seconds: Annotated[
        float,
        setting(
            "Time after which pods of a quota that exceeds its runtime are evicted.",
            when="quotas must get their lent capacity back sooner, or later",
            unit="seconds",
            ge=0,
            le=86_400,
        ),
    ] = 120.0
    gangs_by: Annotated[
        Literal["own", "auto", "kubernetes"],
        setting(
            "Who places gangs. own: cotenant, on any kube-scheduler. auto: Kubernetes' gang scheduling if the API "
            "server has PodGroups of scheduling.k8s.io/v1alpha2, for gangs that these can describe. kubernetes: as "
            "auto, with a warning if the API server has none. The scheduler's feature gate GangScheduling must be on, "
            "which cotenant cannot check.",
            when="Kubernetes' own gang scheduling is available",
        ),
    ] = "own"
    gang_place_seconds: float = 30.0
    """Longest time for reserving a gang's capacity; if it is not complete by then, all of it is released. Longer than
    placing some hundreds of pods takes; other pods wait meanwhile."""
    back_off_seconds: float = 5.0
    """Time until a gang that was not placed is retried; it doubles with each further failure."""
    longest_back_off_seconds: float = 300.0
    """Longest time until a gang is retried; kube-scheduler retries unschedulable pods every five minutes, too."""
    served_seconds: float = 30.0
    """Time for which the webhook gates pods after the manager's last sign of life. Twice a leader election's lease, so
    that a change of leader does not count as an outage."""
