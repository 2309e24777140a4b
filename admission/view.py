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
    """The state of the cluster that webhooks read; `profiles` are in name order, `namespaces` have labels by name.

    `offers` are the Reservations that new pods may use. `annotated` has the amounts that workloads' annotations give to
    their new pods, by kind, namespace and name. Nothing is mutated before `synced` (all watched objects were read
    once), and no quota is validated before `quotas_synced` (the quota tree is complete). The manager promises to
    release pods that wait for quota or gang until the Unix time `queues_served_until_seconds`. `natives` is set if
    Kubernetes is to place gangs and the server can. `demands` has, by namespace, the cpu and memory that LimitRanges
    and ResourceQuotas require; it is empty if they are not read. `quota_profiles` select the nodes of each quota tree.
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
