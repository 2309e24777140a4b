"""The scheduler's own commonest refusals judged here, so that a pod that does not exist yet can be tried. Pure.

Node selector, required node affinity, taints, cordoned nodes, and resources beyond those in the snapshot. What is not
judged (spread, affinity between pods, volumes, ports) is named, never passed over in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import mapping_or_empty
from cotenant.base.kubernetes.pod_identity import Taint, Toleration, toleration
from cotenant.base.kubernetes.protocol import REQUIRED_TERMS
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.scheduler_ext.extender.metric import ExtenderNode

Json = Mapping[str, Any]
Check = Callable[[ExtenderNode], str]
"""Why a node is refused, or ""."""

CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_REFUSING: Final = ("NoSchedule", "NoExecute")


def refusals(spec: Json, nodes: Sequence[ExtenderNode]) -> dict[tuple[str, str], list[bool]]:
    """(rule, words) -> whether each node is refused by it; spec: a pod's, as JSON."""
    checks = (("taints", _taints(spec)), ("selector", _selector(spec)), ("affinity", _affinity(spec)))
    refused: dict[tuple[str, str], list[bool]] = {}
    for number, node in enumerate(nodes):
        for rule, check in checks:
            if reason := check(node):
                refused.setdefault((rule, reason), [False] * len(nodes))[number] = True
    return refused


def unchecked_constraints(spec: Json) -> str:
    """Return a sentence with the constraints of the pod that are not checked here; "" when there are none."""
    affinity = mapping_or_empty(spec.get("affinity"))
    present = {
        "affinity between pods": bool(affinity.get("podAffinity") or affinity.get("podAntiAffinity")),
        "topology spread": bool(spec.get("topologySpreadConstraints")),
        "volumes": any("persistentVolumeClaim" in mapping_or_empty(v) for v in spec.get("volumes") or ()),
        "host ports": any(p.get("hostPort") for c in spec.get("containers") or () for p in c.get("ports") or ()),
    }
    constraints = [name for name, used in present.items() if used]
    return f"not evaluated here, see the scheduler's message: {', '.join(constraints)}" if constraints else ""


def waits_for(spec: Json) -> list[str]:
    """Names of the scheduling gates that hold the pod back."""
    return [str(gate.get("name", "")) for gate in spec.get("schedulingGates") or ()]


def _taints(spec: Json) -> Check:
    tolerated: tuple[Toleration, ...] = tuple(toleration(t) for t in spec.get("tolerations") or ())

    def check(node: ExtenderNode) -> str:
        """Why the node's taints refuse the pod, "" when they do not; a cordon counts as a taint."""
        if node.unschedulable and not CORDON.tolerated(tolerated):
            return "node is cordoned"
        for key, value, effect in node.taints:
            if effect in _REFUSING and not Taint(key, value, effect).tolerated(tolerated):
                return f"taint {key}{'=' + value if value else ''}:{effect} is not tolerated"
        return ""

    return check


def _selector(spec: Json) -> Check:
    labels = {str(k): str(v) for k, v in mapping_or_empty(spec.get("nodeSelector")).items()}

    def check(node: ExtenderNode) -> str:
        missing = next((k for k, v in labels.items() if node.labels.get(k) != v), None)
        return "" if missing is None else f"node selector {missing}={labels[missing]}"

    return check


def _affinity(spec: Json) -> Check:
    """The check of required node affinity: one of its terms must fit; no terms fit no node."""
    nodes = mapping_or_empty(mapping_or_empty(spec.get("affinity")).get("nodeAffinity"))
    required = nodes.get(REQUIRED_TERMS)
    if not isinstance(required, Mapping):
        return lambda _: ""
    return lambda node: "" if matches_terms(required, node) else "required node affinity"


def matches_terms(required: Json, node: ExtenderNode) -> bool:
    """Return whether a NodeSelector, of a pod's affinity or of a persistent volume, selects the node."""
    terms = required.get("nodeSelectorTerms") or ()
    return any(_term(term, node) for term in terms if isinstance(term, Mapping))


def _term(term: Json, node: ExtenderNode) -> bool:
    """All of a term's expressions must hold; an empty term matches nothing."""
    labels, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not labels and not fields:
        return False
    return all(_holds(e, node.labels) for e in labels) and all(_holds(e, {"metadata.name": node.name}) for e in fields)


def _holds(expression: Json, labels: Mapping[str, str]) -> bool:
    key, operator = str(expression.get("key", "")), expression.get("operator")
    if operator in ("Gt", "Lt"):
        return _matches_integer_bound(labels.get(key, ""), operator, list(expression.get("values") or ()))
    try:
        return LabelSelector.parse({"matchExpressions": [dict(expression)]}).matches(labels)
    except UsageError:
        return False


def _matches_integer_bound(label_value: str, operator: str, values: list[Any]) -> bool:
    """Operators Gt and Lt of node affinity: both sides as whole numbers; false when one of them is none."""
    try:
        number, bound = int(label_value), int(values[0])
    except (ValueError, IndexError, TypeError):
        return False
    return number > bound if operator == "Gt" else number < bound
