"""Which fields of other people's objects each account of ours may change: the source of the policies that say so.

RBAC grants an account a whole object; `tools.write_guards` makes of this table the ValidatingAdmissionPolicies that
let only the fields below through, `tools.write_rights` prints them, and the suite of forbidden acts tries all others.

A path names keys from the object down, `[*]` is every entry of a list, and `{a, b}` are the keys of a map that may be
set, changed or removed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cotenant.base.kubernetes.protocol import MANAGER, UNINSTALL, WEBHOOK
from tools.guarded_heap import HEAP_ALONE, container_variables

WORKLOADS: Final = ("deployments", "statefulsets", "daemonsets", "replicasets")
AMOUNTS: Final = tuple(
    f"kubernetes.io/{band}-{resource}" for band in ("batch", "mid") for resource in ("cpu", "memory")
)
NODE_NOTES: Final = ("node.cotenant.dev/batch-cpu-policy", "node.koordinator.sh/originExtendedAllocatable")
HOOK_NOTES: Final = (*NODE_NOTES, "node.cotenant.dev/suppressed-fraction")
CHANGE_NOTES: Final = ("cotenant.dev/change", "cotenant.dev/resources")
FLOORS: Final = ("cotenant.dev/plan-floor", "cotenant.dev/lent-floor")


@dataclass(frozen=True, slots=True)
class Rule:
    """A further demand on the object, in the Common Expression Language, and the sentence of its refusal."""

    expression: str
    message: str


@dataclass(frozen=True, slots=True)
class Guard:
    """One policy: of this account's updates of these resources, only these fields may differ.

    resources: (group, resource) pairs; file: below deploy/; message: the sentence of the refusal. variables: of the
    rules, and when: of which objects, both in the Common Expression Language. component: the label of an object that
    the chart's hook alone installs. shares: the name of a policy that several guards of one file share, each for its
    own writes: the API server converts an object for every policy that matches it, whoever writes.
    """

    name: str
    account: str
    file: str
    resources: Sequence[tuple[str, str]]
    fields: Sequence[str]
    message: str
    rules: Sequence[Rule] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    when: str = ""
    component: str = ""
    why: str = ""
    verb: str = ""
    shares: str = ""

    @property
    def policy(self) -> str:
        """The name of its policy."""
        return self.shares or self.name

    @property
    def of_whom(self) -> str:
        """Whose updates it is about, in the Common Expression Language."""
        if not self.verb:
            return f"request.userInfo.username == 'system:serviceaccount:cotenant:{self.account}'"
        ((group, resource),) = self.resources
        authorizer = f"authorizer.group('{group}').resource('{resource}').name(request.name)"
        return f"{authorizer}.check('{self.verb}').allowed() && !{authorizer}.check('update').allowed()"

    @property
    def of_which(self) -> str:
        """Which writes it is about, in the Common Expression Language."""
        return " && ".join(filter(None, (self.of_whom, self.when)))


def _keys(path: str, keys: Sequence[str]) -> str:
    return f"{path}.{{{', '.join(keys)}}}"


def _amounts_within_the_node(part: str) -> str:
    """Batch and mid CPU are counted in millicores, memory in bytes; neither is more than the node has."""
    return " && ".join(
        f"(!('{name}' in {part}) || quantity(string({part}['{name}'])).asApproximateFloat() >= 0.0 && "
        f"quantity(string({part}['{name}'])).asApproximateFloat() <= "
        f"quantity(string(dyn(object).status.capacity['{resource}'])).asApproximateFloat() * {factor})"
        for name in AMOUNTS
        for resource, factor in ((name.rsplit("-", 1)[1], "1000.0" if name.endswith("cpu") else "1.0"),)
    )


_CAPACITY: Final = "dyn(object).?status.?capacity.orValue({})"
_ALLOCATABLE: Final = "dyn(object).?status.?allocatable.orValue({})"


def _original(text: str) -> str:
    """CEL: the part of our annotation that says which minimum the autoscaler had by itself."""
    return f"string({text}).find('\"original\": ?(null|[0-9]+)').replace(' ', '')"


_FLOOR_NOTES: Final = ", ".join(f"'{key}'" for key in FLOORS)
_OWN_MINIMUM: Final = (
    "['\"original\":' + string(dyn(oldObject).spec.?minReplicas.orValue(1))] + "
    "(dyn(oldObject).spec.?minReplicas.orValue(1) == 1 ? ['\"original\":null'] : []) + "
    f"[{_FLOOR_NOTES}].filter(k, k in variables.oldNotes).map(k, {_original('variables.oldNotes[k]')})"
)
_RETURNS: Final = Rule(
    f"dyn(object).spec.?minReplicas.orValue(1) >= dyn(oldObject).spec.?minReplicas.orValue(1) || "
    f"[{_FLOOR_NOTES}].exists(k, k in variables.oldNotes && "
    f"{_original('variables.oldNotes[k]')} in (['\"original\":' + string(dyn(object).spec.?minReplicas.orValue(1))] + "
    "(dyn(object).spec.?minReplicas.orValue(1) == 1 ? ['\"original\":null'] : [])))",
    "the floor of an autoscaler is lowered only to what it was before we raised it",
)
_MARKED: Final = Rule(
    "dyn(object).spec.?minReplicas.orValue(1) <= dyn(oldObject).spec.?minReplicas.orValue(1) || "
    f"[{_FLOOR_NOTES}].exists(k, k in variables.notes && string(variables.notes[k]).matches("
    '\'^[{]"plan": ?"[^"]*", ?"original": ?(null|[0-9]+), ?"floor": ?\' + '
    "string(dyn(object).spec.?minReplicas.orValue(1)) + '[}]$'))",
    "the floor of an autoscaler is raised only with our mark of it, by which it is given back",
)

_OUR_GATES: Final = "['cotenant.dev/reservation', 'cotenant.dev/quota', 'cotenant.dev/gang']"
_GATES: Final = {
    name: f"dyn({root}).?spec.?schedulingGates.orValue([]).map(g, g.name)"
    for name, root in (("gates", "object"), ("oldGates", "oldObject"))
}
_GATES_END: Final = (
    "variables.gates.all(g, g in variables.oldGates) && variables.oldGates.all(g, g in variables.gates || "
    f"g in {_OUR_GATES})"
)
"""Of a pod's scheduling gates our own are taken away, and none is added."""
_NARROWED: Final = (
    "dyn(object).?spec.?affinity.orValue({}) == dyn(oldObject).?spec.?affinity.orValue({}) || "
    f"variables.oldGates.exists(g, g in {_OUR_GATES})"
)
"""Kubernetes lets the affinity of any pod behind a gate be narrowed, also where the gate is somebody else's."""
POD_WRITES: Final = "cotenant-reservation-writer"
"""The policy on writes of pods. Older versions had three; where they are left, they ask no more than this one."""
_WAITS: Final = "dyn(oldObject).?spec.?nodeName.orValue('') == ''"
_POD_MARKS: Final = (
    "cotenant.dev/reservation",
    "cotenant.dev/reservation-missed",
    "cotenant.dev/change",
    "cotenant.dev/queued",
    "scheduling.koordinator.sh/reservation-allocated",
)
EMPTYING: Final = "cotenant.dev/emptying"
_OUR_TAINTS: Final = "['cotenant.dev/emptying', 'cotenant.dev/load']"


def _set_no_annotation(keys: Sequence[str]) -> str:
    """CEL: of these annotations none is added or changed."""
    new, old = (f"dyn({root}).metadata.?annotations.orValue({{}})" for root in ("object", "oldObject"))
    return f"{[*keys]!r}.all(k, !(k in {new}) || k in {old} && {new}[k] == {old}[k])"


def _taints(ours: str) -> dict[str, str]:
    """Variables: taints of a node that are ours, and all others before and after. ours: keys, a list of CEL."""
    return {
        **{
            name: f"dyn({root}).?spec.?taints.orValue([]).filter(t, !(t.key in {ours}))"
            for name, root in (("others", "object"), ("oldOthers", "oldObject"))
        },
        "marks": f"dyn(object).?spec.?taints.orValue([]).filter(t, t.key in {ours})",
    }


_TAINTS: Final = _taints(_OUR_TAINTS)

_NOTES: Final = {
    "notes": "dyn(object).metadata.?annotations.orValue({})",
    "oldNotes": "dyn(oldObject).metadata.?annotations.orValue({})",
}


def _scaled(root: str) -> str:
    """CEL: the metrics of an autoscaler without the utilisation that they aim at."""
    return (
        f"dyn({root}).spec.?metrics.orValue([]).map(m, m.type == 'Resource' && "
        "m.resource.target.type == 'Utilization' ? dyn([m.type, m.resource.name]) : dyn(m))"
    )


def _targets(root: str) -> str:
    """CEL: the utilisation targets of an autoscaler, percent."""
    return (
        f"dyn({root}).spec.?metrics.orValue([]).filter(m, m.type == 'Resource' && m.resource.target.type == "
        "'Utilization').map(m, m.resource.target.averageUtilization)"
    )


GUARDS: Final = (
    Guard(
        "cotenant-manager-node-amounts",
        MANAGER,
        "manager-guard.yaml",
        [("", "nodes/status")],
        [
            _keys("status.capacity", AMOUNTS),
            _keys("status.allocatable", AMOUNTS),
            _keys("metadata.annotations", NODE_NOTES),
        ],
        "of a node's status the manager changes the batch and mid amounts and their two annotations alone",
        [
            Rule(
                f"{_amounts_within_the_node(_CAPACITY)} && {_amounts_within_the_node(_ALLOCATABLE)}",
                "no batch or mid amount of a node is more than the node has",
            )
        ],
        why="RBAC grants a node's whole status: addresses, the kubelet's port, labels, allocatable CPU.",
    ),
    Guard(
        "cotenant-manager-zone-amounts",
        MANAGER,
        "manager-guard.yaml",
        [("topology.node.k8s.io", "noderesourcetopologies")],
        ["zones[*].resources"],
        "of a node's topology the manager changes the resources of its zones alone",
        why="Batch amounts of NUMA zones stand among what the node's agent reports.",
    ),
    Guard(
        "cotenant-manager-workloads",
        MANAGER,
        "manager-guard.yaml",
        [*(("apps", name) for name in WORKLOADS), ("", "replicationcontrollers")],
        [
            *(
                f"spec.template.spec.{part}[*].{field}"
                for part in ("containers", "initContainers")
                for field in ("resources.{requests, limits}", "command", "args", "env")
            ),
            _keys("metadata.annotations", CHANGE_NOTES),
            _keys("metadata.labels", ("cotenant.dev/resources",)),
        ],
        "of a workload the manager changes the requests and limits of its containers, a heap flag and our marks alone",
        [Rule(HEAP_ALONE, "of command, args and env the manager changes the size of a heap alone")],
        container_variables("spec.template"),
        why="Where cotenant-applier is bound to the manager (autopilot), RBAC grants it the whole workload.",
    ),
    Guard(
        "cotenant-manager-cronjobs",
        MANAGER,
        "manager-guard.yaml",
        [("batch", "cronjobs")],
        [
            *(
                f"spec.jobTemplate.spec.template.spec.{part}[*].{field}"
                for part in ("containers", "initContainers")
                for field in ("resources.{requests, limits}", "command", "args", "env")
            ),
            _keys("metadata.annotations", CHANGE_NOTES),
            _keys("metadata.labels", ("cotenant.dev/resources",)),
        ],
        "of a CronJob the manager changes the requests and limits of its containers, a heap flag and our marks alone",
        [Rule(HEAP_ALONE, "of command, args and env the manager changes the size of a heap alone")],
        container_variables("spec.jobTemplate.spec.template"),
        why="The same for work that ends.",
    ),
    Guard(
        "cotenant-manager-autoscalers",
        MANAGER,
        "manager-guard.yaml",
        [("autoscaling", "horizontalpodautoscalers")],
        ["spec.minReplicas", "spec.metrics", _keys("metadata.annotations", FLOORS)],
        "of an autoscaler the manager changes minReplicas, a utilisation target and our two annotations alone",
        [
            Rule(
                "variables.metrics == variables.oldMetrics && variables.targets.all(t, t <= 100 || "
                "t in variables.oldTargets)",
                "of an autoscaler's metrics the manager changes a utilisation target of at most 100 % alone",
            ),
            Rule(
                f"[{_FLOOR_NOTES}].all(k, !(k in variables.notes) || (k in variables.oldNotes ? "
                f"{_original('variables.notes[k]')} == {_original('variables.oldNotes[k]')} : "
                f"{_original('variables.notes[k]')} in ({_OWN_MINIMUM})))",
                "our annotation on an autoscaler says the minimum that the autoscaler has by itself",
            ),
            _RETURNS,
            _MARKED,
        ],
        {
            **_NOTES,
            **{name: _scaled(root) for name, root in (("metrics", "object"), ("oldMetrics", "oldObject"))},
            **{name: _targets(root) for name, root in (("targets", "object"), ("oldTargets", "oldObject"))},
        },
        why="Plans and the autopilot raise the floor for a peak, and a target moves with the request.",
    ),
    Guard(
        "cotenant-manager-waiting-pods",
        MANAGER,
        "reservation-guard.yaml",
        [("", "pods"), ("", "pods/status")],
        [
            "metadata.labels.{cotenant.dev/reservation}",
            _keys(
                "metadata.annotations",
                ("scheduling.koordinator.sh/reservation-allocated", "cotenant.dev/reservation-missed"),
            ),
            "spec.schedulingGates",
            "spec.affinity.nodeAffinity",
            "status.nominatedNodeName",
        ],
        "of a pod that waits the manager changes our gates, its node affinity and nomination, and our marks alone",
        [
            Rule(_GATES_END, "of a pod's scheduling gates the manager takes cotenant's own away, and adds none"),
            Rule(_NARROWED, "the manager narrows the node affinity of a pod behind a gate of cotenant's own alone"),
        ],
        _GATES,
        when=_WAITS,
        why="RBAC grants every field of a pod; Kubernetes lets tolerations be added and others' gates be taken away.",
        shares=POD_WRITES,
    ),
    Guard(
        "cotenant-reservation-writer",
        MANAGER,
        "reservation-guard.yaml",
        [("", "pods"), ("", "pods/status")],
        [
            "metadata.labels.{cotenant.dev/reservation}",
            _keys(
                "metadata.annotations",
                ("scheduling.koordinator.sh/reservation-allocated", "scheduling.koordinator.sh/soft-eviction"),
            ),
        ],
        "the manager changes no pod that runs, but to say whose reserved capacity it got, or that it should leave",
        when=f"!({_WAITS})",
        why="Kubernetes cannot grant the patch of pods that wait for a node alone.",
        shares=POD_WRITES,
    ),
    Guard(
        "cotenant-manager-resizes",
        MANAGER,
        "manager-guard.yaml",
        [("", "pods/resize")],
        [f"spec.{part}[*].resources.{{requests, limits}}" for part in ("containers", "initContainers")],
        "of a pod that runs the manager resizes the requests and limits of its containers alone",
        why="Where cotenant-applier is bound to the manager (autopilot), it resizes pods in place.",
    ),
    Guard(
        "cotenant-emptying",
        MANAGER,
        "emptying-guard.yaml",
        [("", "nodes")],
        ["spec.taints"],
        "of a node the manager changes our two taints alone",
        [
            Rule(
                "variables.others == variables.oldOthers && variables.marks.all(t, t.effect == 'PreferNoSchedule' || "
                "t.key == 'cotenant.dev/load' && t.effect == 'NoSchedule')",
                "of a node's taints the manager changes cotenant.dev/emptying:PreferNoSchedule and cotenant.dev/load "
                "alone",
            )
        ],
        _TAINTS,
        why="Kubernetes cannot grant the patch of our taints alone. Not the status, which kubelets write all the time.",
    ),
    Guard(
        "cotenant-gate-lifter",
        WEBHOOK,
        "reservation-guard.yaml",
        [("", "pods")],
        ["spec.schedulingGates"],
        "the webhook changes nothing of a pod but its scheduling gates",
        [
            Rule(
                f"{_WAITS} && variables.gates.size() < variables.oldGates.size() && {_GATES_END}",
                "the webhook changes nothing of a pod but that one which waits loses gates of cotenant's own",
            )
        ],
        _GATES,
        why="The webhook ends our gates where no manager is left to; it has no right to the status of pods.",
        shares=POD_WRITES,
    ),
    Guard(
        "cotenant-uninstall-pods",
        UNINSTALL,
        "uninstall-guard.yaml",
        [("", "pods")],
        [_keys("metadata.labels", _POD_MARKS), _keys("metadata.annotations", _POD_MARKS), "spec.schedulingGates"],
        "the hook changes nothing of a pod but our marks, and that it waits no longer for its capacity, quota or gang",
        [
            Rule(_GATES_END, "of a pod's scheduling gates the hook takes cotenant's own away, and adds none"),
            Rule(
                f"{[*_POD_MARKS]!r}.all(k, ['labels', 'annotations'].all(m, "
                "dyn(object).metadata[?m].orValue({})[?k] == optional.none() || "
                "dyn(object).metadata[?m].orValue({})[?k] == dyn(oldObject).metadata[?m].orValue({})[?k]))",
                "the hook sets no label and no annotation of a pod",
            ),
        ],
        _GATES,
        component="manager",
        why="Our scheduling gates and marks on pods go with cotenant.",
    ),
    Guard(
        "cotenant-uninstall-nodes",
        UNINSTALL,
        "uninstall-guard.yaml",
        [("", "nodes")],
        ["spec.taints"],
        "of a node the hook changes our two taints alone",
        [
            Rule(
                "variables.others == variables.oldOthers && "
                "variables.marks.all(t, t in dyn(oldObject).?spec.?taints.orValue([]))",
                "of a node's taints the hook takes cotenant.dev/emptying and cotenant.dev/load away, and sets none",
            )
        ],
        _TAINTS,
        component="manager",
        why="The taints of nodes that are emptied or busy go with cotenant.",
    ),
    Guard(
        "cotenant-uninstall-node-amounts",
        UNINSTALL,
        "uninstall-guard.yaml",
        [("", "nodes/status")],
        [
            _keys("status.capacity", AMOUNTS),
            _keys("status.allocatable", AMOUNTS),
            _keys("metadata.annotations", HOOK_NOTES),
        ],
        "of a node's status the hook takes the batch and mid amounts and our annotations away, and nothing else",
        [
            Rule(
                f"{[*AMOUNTS]!r}.all(k, !(k in {_CAPACITY}) && !(k in {_ALLOCATABLE}) || "
                f"k in dyn(oldObject).?status.?capacity.orValue({{}}) && "
                f"{_CAPACITY}[?k] == dyn(oldObject).status.capacity[?k] && "
                f"{_ALLOCATABLE}[?k] == dyn(oldObject).?status.?allocatable.orValue({{}})[?k])",
                "the hook sets no amount of a node",
            ),
            Rule(_set_no_annotation(HOOK_NOTES), "the hook sets no annotation of a node"),
        ],
        component="all",
        why="The hook after `helm uninstall` takes away what the manager wrote.",
    ),
    Guard(
        "cotenant-uninstall-zone-amounts",
        UNINSTALL,
        "uninstall-guard.yaml",
        [("topology.node.k8s.io", "noderesourcetopologies")],
        ["zones[*].resources"],
        "of a node's topology the hook changes the resources of its zones alone",
        component="all",
        why="Batch amounts of NUMA zones stand among what the node's agent reports.",
    ),
    Guard(
        "cotenant-uninstall-reservations",
        UNINSTALL,
        "uninstall-guard.yaml",
        [("scheduling.koordinator.sh", "reservations/status")],
        ["status"],
        "of a Reservation the hook changes the status alone",
        [
            Rule(
                "dyn(object).status.all(k, k == 'phase' || k in dyn(oldObject).?status.orValue({}) && "
                "dyn(object).status[k] == dyn(oldObject).status[k]) && "
                "dyn(object).status.?phase.orValue('') == 'Pending'",
                "the hook says of a Reservation that it is pending, and nothing new",
            )
        ],
        component="manager",
        why="A Reservation whose placeholder went with us is not available any more.",
    ),
    Guard(
        "cotenant-uninstall-autoscalers",
        UNINSTALL,
        "uninstall-guard.yaml",
        [("autoscaling", "horizontalpodautoscalers")],
        ["spec.minReplicas", _keys("metadata.annotations", FLOORS)],
        "of an autoscaler the hook gives minReplicas back and takes our two annotations away, and nothing else",
        [
            _RETURNS,
            Rule(
                "dyn(object).spec.?minReplicas.orValue(1) <= dyn(oldObject).spec.?minReplicas.orValue(1)",
                "the hook raises no floor of an autoscaler",
            ),
            Rule(_set_no_annotation(FLOORS), "the hook sets no annotation of an autoscaler"),
        ],
        _NOTES,
        component="manager",
        why="A floor that a plan raised goes back to what stood there.",
    ),
)
PEOPLE: Final = (
    Guard(
        "cotenant-emptier-taint",
        "",
        "people-guard.yaml",
        [("", "nodes")],
        ["spec.taints"],
        "the role cotenant-emptier changes the taint cotenant.dev/emptying of a node alone",
        [
            Rule(
                "variables.others == variables.oldOthers && variables.marks.all(t, t.effect == 'PreferNoSchedule')",
                "of a node's taints the role cotenant-emptier changes cotenant.dev/emptying:PreferNoSchedule alone",
            )
        ],
        _taints(f"['{EMPTYING}']"),
        why="Kubernetes cannot grant the patch of one taint alone. Not the status, which kubelets write all the time.",
        verb="empty",
    ),
)
"""The same of roles that people are bound to."""
