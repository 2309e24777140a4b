"""The most common rules of kube-scheduler itself, evaluated here for pods that do not exist yet. Pure.

Node selector, required node affinity, taints, cordoned nodes, and resources beyond those in the snapshot. What is not
evaluated (spread, affinity between pods, volumes, ports) is always named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from cotenant.base.errors import UsageError
from cotenant.base.json_documents.json_decoders import mapping_or_empty
from cotenant.base.kubernetes.pod_identity import Taint, Toleration, toleration
from cotenant.base.kubernetes.protocol import REQUIRED_TERMS
from cotenant.base.kubernetes.selector import LabelSelector
from cotenant.scheduler_ext.extender.metric import ExtenderNode

Json = Mapping[str, Any]
CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_REFUSING: Final = ("NoSchedule", "NoExecute")


def refusals(spec: Json, nodes: Sequence[ExtenderNode]) -> dict[tuple[str, str], list[bool]]:
    """Return (rule, text) -> whether it refuses each node; `spec` is a pod's spec as JSON."""
    tolerated: tuple[Toleration, ...] = tuple(toleration(t) for t in spec.get("tolerations") or ())
    labels = {str(k): str(v) for k, v in mapping_or_empty(spec.get("nodeSelector")).items()}
    affinity = mapping_or_empty(mapping_or_empty(spec.get("affinity")).get("nodeAffinity")).get(REQUIRED_TERMS)
    refused: dict[tuple[str, str], list[bool]] = {}
    for number, node in enumerate(nodes):
        reasons = []
        taints = (t for t in node.taints if t[2] in _REFUSING and not Taint(*t).tolerated(tolerated))
        if node.unschedulable and not CORDON.tolerated(tolerated):  # a cordon counts as a taint
            reasons.append(("taints", "node is cordoned"))
        elif taint := next(taints, None):
            key, value, effect = taint
            reasons.append(("taints", f"taint {key}{'=' + value if value else ''}:{effect} is not tolerated"))
        missing = next((k for k, v in labels.items() if node.labels.get(k) != v), None)
        if missing is not None:
            reasons.append(("selector", f"node selector {missing}={labels[missing]}"))
        if isinstance(affinity, Mapping) and not matches_terms(affinity, node):
            reasons.append(("affinity", "required node affinity"))
        for reason in reasons:
            refused.setdefault(reason, [False] * len(nodes))[number] = True
    return refused


def unchecked_constraints(spec: Json) -> str:
    """Return a sentence with the pod's constraints that the extender does not evaluate; "" if there are none."""
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
    """Return the names of the pod's scheduling gates."""
    return [str(gate.get("name", "")) for gate in spec.get("schedulingGates") or ()]


def matches_terms(required: Json, node: ExtenderNode) -> bool:
    """Return whether a NodeSelector of a pod's affinity or of a persistent volume selects the node.

    It does if all expressions of one of its terms match. An empty term matches no node, nor does a lack of terms.
    """
    name = {"metadata.name": node.name}
    for term in required.get("nodeSelectorTerms") or ():
        if isinstance(term, Mapping):
            terms = [(expression, node.labels) for expression in term.get("matchExpressions") or ()]
            terms += [(expression, name) for expression in term.get("matchFields") or ()]
            if terms and all(_holds(expression, labels) for expression, labels in terms):  # up to the first that fails
                return True
    return False


def _holds(expression: Json, labels: Mapping[str, str]) -> bool:
    key, operator = str(expression.get("key", "")), expression.get("operator")
    if operator in ("Gt", "Lt"):  # both sides are whole numbers; false when one of them is none
        values = list(expression.get("values") or ())
        try:
            number, bound = int(labels.get(key, "")), int(values[0])
        except (ValueError, IndexError, TypeError):
            return False
        return number > bound if operator == "Gt" else number < bound
    try:
        return LabelSelector.parse({"matchExpressions": [dict(expression)]}).matches(labels)
    except UsageError:
        return False
