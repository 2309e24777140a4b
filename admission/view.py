"""The cluster's state as the webhooks know it: an immutable snapshot that the server builds from its mirrors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cotenant.admission.namespace_limits.demands import Demand
from cotenant.admission.profile import PriorityClassEntry, Profile
from cotenant.base.kubernetes.quota_tree import QuotaTree
from cotenant.changes.model.annotated_resources import AnnotatedResources
from cotenant.scheduler_ext.queues.admission.pod_gates import NativeGangs
from cotenant.scheduler_ext.queues.view import QuotaProfile
from cotenant.scheduler_ext.reservations.pod_gate import Offers

Labels = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClusterView:
    """Profiles in name order, namespace labels, priority classes, the quota tree, and reserved capacity on offer.

    `annotated`: amounts that workloads' annotations give to new pods, by kind, namespace and name. `synced`: all
    watched objects have been read once; before that nothing is mutated. `quotas_synced`: the quota tree is complete, so
    that quotas can be validated. `queues_served_until_seconds`: Unix time until which the manager promises to release
    pods that wait for quota or gang. `demands`: what LimitRanges and ResourceQuotas require in cpu and memory, by
    namespace; empty if they are not read. `quota_profiles`: the nodes of each quota tree. `natives`: set if Kubernetes'
    own gang scheduling places gangs and the server offers it.
    """

    profiles: tuple[Profile, ...] = ()
    namespaces: Mapping[str, Labels] = field(default_factory=dict)
    priority_classes: Mapping[str, PriorityClassEntry] = field(default_factory=dict)
    quotas: QuotaTree = field(default_factory=QuotaTree)
    offers: Offers = field(default_factory=Offers)
    annotated: Mapping[tuple[str, str, str], AnnotatedResources] = field(default_factory=dict)
    synced: bool = True
    quotas_synced: bool = True
    queues_served_until_seconds: float = 0.0
    natives: NativeGangs | None = None
    demands: Mapping[str, tuple[Demand, ...]] = field(default_factory=dict)
    quota_profiles: tuple[QuotaProfile, ...] = ()
