"""EDGE: reads from the cluster what the guardrails need beside a recommendation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from cotenant.base.allocation.device_allocator import COLLECTION as DEVICES
from cotenant.base.errors import ClusterAbsent, ClusterForbidden, NoData
from cotenant.base.identity import WorkloadRef
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kube.live import VPA_GROUP
from cotenant.base.kubernetes.intent import Address, Create
from cotenant.base.kubernetes.models.autoscalers import VerticalAutoscalerObject, vertical_writer
from cotenant.base.kubernetes.models.node import NodeWire
from cotenant.base.kubernetes.protocol import DEVICES_BY_CLAIMS, DEVICES_LABEL, QUOTA_GROUP
from cotenant.base.kubernetes.qos import qos_of
from cotenant.base.kubernetes.quantity import parse_amount
from cotenant.base.kubernetes.quota_tree import QuotaNode, QuotaTree
from cotenant.base.kubernetes.selector import LabelSelector, Operator
from cotenant.base.resource import Resource
from cotenant.changes.decide import autoscaler_targets
from cotenant.changes.decide.checks.capacity import UNCOUNTED, claim_of, requests_of_running, uncounted_claim
from cotenant.changes.decide.field_changes import address_of, pod_labels
from cotenant.changes.decide.guardrails import GuardrailContext
from cotenant.changes.decide.in_place import RESIZABLE, live_workload_pods
from cotenant.changes.decide.rule import ClusterLimits, QuotaClaim
from cotenant.changes.model.annotated_resources import WEBHOOK_CONFIGURATION
from cotenant.changes.model.change import ChangeStatus
from cotenant.changes.model.settings import ActionSettings
from cotenant.changes.soak.pod_rules import last_kills
from cotenant.recommender.model.recommendation import Recommendation

Json = Mapping[str, Any]

SCALERS: Final = "autoscaling/v2"
TOGETHER_FROM: Final = 4
"""From this many workloads in a namespace on, their objects are listed together instead of read one by one."""


@dataclass(frozen=True, slots=True)
class ClusterUser:
    """The user of the cluster on whose behalf cotenant acts, by the kubeconfig or by the login.

    `logs_in` is true if the user is known by a login, so that a second person can be asked too.
    """

    name: str
    groups: tuple[str, ...] = ()
    logs_in: bool = False


@dataclass(frozen=True, slots=True)
class LiveWorkload:
    """A workload's object and the related objects of the cluster, as read for a review.

    `webhook` says why new pods would not get annotated values, "" if they would; `resizes` is true if the API server
    has `pods/resize`.
    """

    workload: Json
    autoscalers: Mapping[str, Json]
    disruptions: float | None
    pods: Sequence[Json] = ()
    cluster_limits: ClusterLimits = field(default_factory=ClusterLimits)
    webhook: str = ""
    resizes: bool = True


class _Verb(msgspec.Struct):
    name: str = ""


class _Verbs(msgspec.Struct):
    resources: list[_Verb] = []


class LiveContext:
    """A cache of the cluster objects for one batch of reviews. Not thread-safe.

    An object that was not read is None, and the guardrail reports why it was not checked. `accepted` are changes
    that quotas may not count yet.
    """

    def __init__(
        self, client: KubeClient, accepted: Iterable[ChangeStatus] = (), workloads: Iterable[WorkloadRef] = ()
    ) -> None:
        """`workloads` are those that will be read: if a namespace has many, their objects are listed together."""
        self.client = client
        of_namespace = Counter(workload.namespace for workload in workloads)
        self._listed_together = {namespace for namespace, count in of_namespace.items() if count >= TOGETHER_FROM}
        self._accepted = [status for status in accepted if status.state in UNCOUNTED]
        self._known: dict[str, Any] = {}
        self._absent: set[str] = set()
        self._claims: dict[WorkloadRef, QuotaClaim] = {}

    def read(self, recommendations: Sequence[Recommendation]) -> LiveWorkload:
        """Read the cluster's objects for one workload's recommendations; raise NoData if the workload is gone."""
        workload = recommendations[0].container.workload
        live = self._object(address_of(workload), workload.kind)
        if live is None:
            raise NoData(f"{workload} is not in the cluster any more", fix="Scan again: cotenant scan.")
        names = [move.name for move in autoscaler_targets.moves(list(recommendations))]
        places = {name: Address(SCALERS, autoscaler_targets.RESOURCE, name, workload.namespace) for name in names}
        scalers = {name: self._object(place, "HorizontalPodAutoscaler") for name, place in places.items()}
        pods, inside = self.pods(workload, live), f"namespaces/{workload.namespace}"
        let_go = disruptions(self._list(f"/apis/policy/v1/{inside}/poddisruptionbudgets"), live)
        listed = self._list(f"/apis/{SCALERS}/{inside}/{autoscaler_targets.RESOURCE}")
        targets = (((scaler.get("spec") or {}).get("scaleTargetRef") or {}, scaler) for scaler in listed or ())
        own = [s for aim, s in targets if (aim.get("kind"), aim.get("name")) == (workload.kind, workload.name)]
        following = None if listed is None else own
        quotas, tree = self._list(f"/api/v1/{inside}/resourcequotas"), self._quota_tree(inside)
        objects = self._list(f"{VPA_GROUP}/{inside}/verticalpodautoscalers") or ()
        autoscalers = (msgspec.convert(body, VerticalAutoscalerObject) for body in objects)
        vertical = vertical_writer(workload.kind, workload.name, autoscalers)
        limit_ranges, nodes = self._list(f"/api/v1/{inside}/limitranges"), self._nodes()
        claims = self._claims_beside(workload) if quotas or tree else ()
        devices, daemon_nodes = self._devices() if any(r.gpu for r in recommendations) else None, None
        if workload.kind == "DaemonSet":  # cordoned nodes too: daemons run there as well
            used = {(pod.get("spec") or {}).get("nodeName") for pod in pods}
            used_nodes = (node for node in self._listed_nodes() or () if node.metadata.name in used)
            daemon_nodes = {node.metadata.name: _amounts(node) for node in used_nodes}
        return LiveWorkload(
            live,
            {name: scaler for name, scaler in scalers.items() if scaler},
            let_go,
            pods,
            ClusterLimits(
                limit_ranges, quotas, following, nodes, daemon_nodes, devices, claims, tree, vertical, self._absent
            ),
            self.webhook(),
            self.resizes(),
        )

    def claim(self, recommendations: Sequence[Recommendation], live: Json) -> None:
        """Record the quota that a reviewed workload will use, so that it is not available to workloads read later."""
        workload = recommendations[0].container.workload
        running = requests_of_running(self.pods(workload, live))
        self._claims[workload] = claim_of(recommendations, live, running)

    def pods(self, workload: WorkloadRef, live: Json) -> list[Json]:
        """Return the workload's running pods; none if its kind cannot be resized, or if the pods may not be listed."""
        listed = self._selected_pods(workload.namespace, live) if workload.kind in RESIZABLE else []
        return live_workload_pods(listed or [], workload, str((live.get("metadata") or {}).get("uid", "")))

    def _selected_pods(self, namespace: str, live: Json) -> Sequence[Json] | None:
        """Return the pods that the workload's selector matches, by a query unless the namespace is listed as a whole.

        In a list, only the pods with the rarest label value that the selector requires are tested.
        """
        selector, path = selector_of_pods(live), f"/api/v1/namespaces/{namespace}/pods"
        demanded = [(r.key, *r.values) for r in selector.requirements or () if r.operator is Operator.IN]
        single = [pair for pair in demanded if len(pair) == 2]
        if namespace not in self._listed_together or not single:
            return self._list(path, selector.query)
        pods = self._list(path)
        if pods is None:
            return None
        by_label = self._known.get(f"{path} by label")
        if by_label is None:
            by_label = self._known[f"{path} by label"] = defaultdict(list)
            for pod in pods:
                for pair in (pod["metadata"].get("labels") or {}).items():
                    by_label[pair].append(pod)
        candidates = min((by_label.get(pair, []) for pair in single), key=len)
        return [pod for pod in candidates if selector.matches(pod["metadata"].get("labels") or {})]

    def _object(self, address: Address, kind: str) -> Json | None:
        """Return the object, None if there is none; get it alone if its kind may not be listed."""
        key, path = f"{address.collection} by name", address.collection
        if address.namespace in self._listed_together and key not in self._known:
            listed = self._list(path)
            typed = {"apiVersion": address.api_version, "kind": kind}  # which items of a list do not say
            by_name = {body["metadata"]["name"]: {**typed, **body} for body in listed or ()}
            self._known[key] = None if listed is None else by_name
        objects: dict[str, Json] | None = self._known.get(key)
        return self.client.get(address.path) if objects is None else objects.get(address.name)

    def webhook(self) -> str:
        """Return why new pods would not get annotated values; "" if they would."""
        if "webhook" not in self._known:
            path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{WEBHOOK_CONFIGURATION}"
            missing = "cotenant's webhook is not installed, so new pods would not get the values"
            try:
                is_there = self.client.get(path) is not None
                self._known["webhook"] = "" if is_there else f"{missing}: cotenant install --components webhooks"
            except ClusterForbidden as error:
                why = f"it is not known whether new pods get the values: {error.message}"
                self._known["webhook"] = why
        return str(self._known["webhook"])

    def resizes(self) -> bool:
        """Return whether the API server has `pods/resize`; every user may query that."""
        if "resizes" not in self._known:
            verbs = self.client.get("/api/v1", _Verbs)
            self._known["resizes"] = any(r.name == "pods/resize" for r in (verbs.resources if verbs else ()))
        return bool(self._known["resizes"])

    def _quota_tree(self, inside: str) -> QuotaTree | None:
        """Return the tree of all ElasticQuotas, or of the namespace's alone if others may not be read."""
        path = f"/apis/{QUOTA_GROUP}/elasticquotas"
        if (objects := self._list(path)) is None:
            path = f"/apis/{QUOTA_GROUP}/{inside}/elasticquotas"
            objects = self._list(path)
        if objects is None:
            return None
        if f"{path} as a tree" not in self._known:
            quotas = [QuotaNode.read(body) for body in objects]
            self._known[f"{path} as a tree"] = QuotaTree.of({(quota.namespace, quota.name): quota for quota in quotas})
        tree: QuotaTree = self._known[f"{path} as a tree"]
        return tree

    def _claims_beside(self, workload: WorkloadRef) -> list[QuotaClaim]:
        """Return the claims of other workloads: of accepted changes in this namespace, and of all reviews so far."""
        key = f"claims/{workload.namespace}"
        if key not in self._known:  # of changes that were accepted before, whose workload can be read
            claim_list = []
            for status in (s for s in self._accepted if s.change.namespace == workload.namespace):
                with suppress(ClusterForbidden):
                    live = self.client.get(address_of(status.change.ref).path)
                    claim = uncounted_claim(status, live) if live else None
                    claim_list += [] if claim is None else [claim]
            self._known[key] = claim_list
        accepted: list[QuotaClaim] = self._known[key]
        claims = {claim.workload: claim for claim in (*accepted, *self._claims.values())}
        return [c for ref, c in claims.items() if ref != workload]

    def _devices(self) -> list[Json] | None:
        """Return the Device objects of nodes whose devices the extender assigns."""
        for_claims = self._list("/api/v1/nodes", f"{DEVICES_LABEL}={DEVICES_BY_CLAIMS}") or ()
        names = {node["metadata"]["name"] for node in for_claims}
        listed = self._list(DEVICES)
        return None if listed is None else [scaler for scaler in listed if scaler["metadata"]["name"] not in names]

    def _nodes(self) -> list[Mapping[Resource, int]] | None:
        if "amounts of nodes" not in self._known:
            listed = self._listed_nodes()
            amounts = None if listed is None else [_amounts(node) for node in listed if not node.spec.unschedulable]
            self._known["amounts of nodes"] = amounts
        nodes: list[Mapping[Resource, int]] | None = self._known["amounts of nodes"]
        return nodes

    def _listed_nodes(self) -> list[NodeWire] | None:
        if "nodes" not in self._known:
            try:
                self._known["nodes"] = list(self.client.list("/api/v1/nodes", NodeWire))
            except (ClusterForbidden, ClusterAbsent):
                self._known["nodes"] = None
        nodes: list[NodeWire] | None = self._known["nodes"]
        return nodes

    def _list(self, path: str, selector: str = "") -> list[Json] | None:
        key = f"{path}?{selector}"
        if key not in self._known:
            query = {"labelSelector": selector} if selector else {}
            try:
                self._known[key] = list(self.client.list(path, limit=None, **query))
            except (ClusterForbidden, ClusterAbsent) as error:
                self._known[key] = None
                if isinstance(error, ClusterAbsent):
                    self._absent.add(path.rpartition("/")[2])
        objects: list[Json] | None = self._known[key]
        return objects


def who(client: KubeClient) -> ClusterUser:
    """Return the user that the API server takes the client for; raise ClusterError if the server does not answer."""
    address = Address("authentication.k8s.io/v1", "selfsubjectreviews", "")
    body = {"apiVersion": address.api_version, "kind": "SelfSubjectReview"}
    review = Writer(client, "cotenant-actions").send(Create(address, body, why="who is this"))
    user = (review.get("status") or {}).get("userInfo") or {}
    return ClusterUser(str(user.get("username", "unknown")), tuple(user.get("groups") or ()))


def guardrail_context(live: LiveWorkload, settings: ActionSettings, **more: Any) -> GuardrailContext:
    """Return the input of `guardrails.judge`; `more` are fields that are not in a cluster object."""
    return GuardrailContext(
        live=live.workload,
        qos=qos_of(pod_labels(live.workload)),
        autoscaled=bool(live.autoscalers),
        disruptions=live.disruptions,
        windows=settings.windows,
        windows_spare_memory=settings.windows_spare_memory,
        webhook=live.webhook,
        cluster_limits=live.cluster_limits,
        kills=last_kills(live.pods),
        pods=live.pods,
        **more,
    )


def disruptions(budgets: Sequence[Json] | None, live: Json) -> float | None:
    """Return how many evictions the workload's PodDisruptionBudgets allow now; None if these were not read."""
    if budgets is None:
        return None
    labels = pod_labels(live)
    over = [b for b in budgets if LabelSelector.parse((b.get("spec") or {}).get("selector")).matches(labels)]
    return min((int((b.get("status") or {}).get("disruptionsAllowed") or 0) for b in over), default=float("inf"))


def selector_of_pods(live: Json) -> LabelSelector:
    """Return a selector that matches the workload's pods of every template, and possibly other pods.

    Pods of an older template lack labels of the present one, such as a version. So the template's labels are used only
    if the workload has no selector (CronJob) or a plain map (ReplicationController).
    """
    selector = LabelSelector.parse((live.get("spec") or {}).get("selector"))
    return selector if selector.query else LabelSelector.parse({"matchLabels": pod_labels(live)})


def _amounts(node: NodeWire) -> dict[Resource, int]:
    allocatable = node.status.allocatable or {}
    return {r: parse_amount(r, allocatable[r.value]) for r in Resource if r.value in allocatable}
