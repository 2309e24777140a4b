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

MANAGER: Final = "cotenant-manager"
UNINSTALL: Final = "cotenant-uninstall"
WORKLOADS: Final = ("deployments", "statefulsets", "daemonsets", "replicasets")
AMOUNTS: Final = tuple(
    f"kubernetes.io/{band}-{resource}" for band in ("batch", "mid") for resource in ("cpu", "memory")
)
NODE_NOTES: Final = ("node.cotenant.dev/batch-cpu-policy", "node.koordinator.sh/originExtendedAllocatable")
CHANGE_NOTES: Final = ("cotenant.dev/change", "cotenant.dev/resources")
FLOORS: Final = ("cotenant.dev/plan-floor", "cotenant.dev/lent-floor")
HEAP: Final = (
    r"(-Xm[xs]|-XX:(Max|Initial|Min|SoftMax)HeapSize=)[0-9]+[kKmMgGtT]?|-XX:MaxRAMPercentage=[0-9]+([.][0-9]+)?"
)
"""Flags of a runtime's heap, RE2."""


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
    the chart's hook alone installs.
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


def _without_heap(text: str) -> str:
    """CEL: the text with up to four heap flags replaced by a mark, so that texts that differ there alone are equal."""
    cut = text
    for place in range(4):
        padding = ", ".join([r"'\u0001'"] * (place + 1))
        cut = f"{cut}.replace(({text}.findAll(variables.heap, 4) + [{padding}])[{place}], '\\u0002')"
    return cut


def _containers(template: str) -> dict[str, str]:
    """Variables of HEAP_ALONE. template: path of the pod template."""
    return {"heap": f"r'{HEAP}'"} | {
        name: f"dyn({root}).{template}.spec.containers + dyn({root}).{template}.spec.?initContainers.orValue([])"
        for name, root in (("containers", "object"), ("oldContainers", "oldObject"))
    }


def _same_texts(key: str, text: str) -> str:
    """CEL over the variables `containers` and `oldContainers`: one list of texts, equal but for the heap."""
    mapped = f"c.?{key}.orValue([]).map(t, {_without_heap(text)})"
    return f"variables.containers.map(c, {mapped}) == variables.oldContainers.map(c, {mapped})"


HEAP_ALONE: Final = " && ".join(
    (
        _same_texts("command", "string(t)"),
        _same_texts("args", "string(t)"),
        _same_texts("env", "string(t.?value.orValue(''))"),
        # Names and sources of variables stay as they are.
        "variables.containers.map(c, c.?env.orValue([]).map(e, [dyn(e.name), dyn(e.?valueFrom.orValue({}))])) == "
        "variables.oldContainers.map(c, c.?env.orValue([]).map(e, [dyn(e.name), dyn(e.?valueFrom.orValue({}))]))",
    )
)
"""Of command, args and environment only a heap flag differs."""


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
        _containers("spec.template"),
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
        _containers("spec.jobTemplate.spec.template"),
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
            Rule(
                "variables.gates.all(g, g in variables.oldGates) && variables.oldGates.all(g, g in variables.gates || "
                "g in ['cotenant.dev/reservation', 'cotenant.dev/quota', 'cotenant.dev/gang'])",
                "of a pod's scheduling gates the manager takes cotenant's own away, and adds none",
            )
        ],
        {
            name: f"dyn({root}).?spec.?schedulingGates.orValue([]).map(g, g.name)"
            for name, root in (("gates", "object"), ("oldGates", "oldObject"))
        },
        when="dyn(oldObject).?spec.?nodeName.orValue('') == ''",
        why="RBAC grants every field of a pod; Kubernetes lets tolerations be added and others' gates be taken away.",
    ),
    Guard(
        "cotenant-uninstall-node-amounts",
        UNINSTALL,
        "uninstall-guard.yaml",
        [("", "nodes/status")],
        [
            _keys("status.capacity", AMOUNTS),
            _keys("status.allocatable", AMOUNTS),
            _keys("metadata.annotations", (*NODE_NOTES, "node.cotenant.dev/suppressed-fraction")),
        ],
        "of a node's status the hook takes the batch and mid amounts and our annotations away, and nothing else",
        [
            Rule(
                f"{[*AMOUNTS]!r}.all(k, !(k in {_CAPACITY}) && !(k in {_ALLOCATABLE}) || "
                f"k in dyn(oldObject).?status.?capacity.orValue({{}}) && "
                f"{_CAPACITY}[?k] == dyn(oldObject).status.capacity[?k] && "
                f"{_ALLOCATABLE}[?k] == dyn(oldObject).?status.?allocatable.orValue({{}})[?k])",
                "the hook sets no amount of a node",
            )
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
        "cotenant-uninstall-autoscalers",
        UNINSTALL,
        "uninstall-guard.yaml",
        [("autoscaling", "horizontalpodautoscalers")],
        ["spec.minReplicas", _keys("metadata.annotations", FLOORS)],
        "of an autoscaler the hook gives minReplicas back and takes our two annotations away, and nothing else",
        [_RETURNS],
        _NOTES,
        component="extender",
        why="A floor that a plan raised goes back to what stood there.",
    ),
)
