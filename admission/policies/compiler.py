"""Profiles as MutatingAdmissionPolicies with their bindings, and what policies cannot express. Pure.

One policy per profile: its selectors are the policy's match constraints, which the API server evaluates before anything
is changed; its fields are one JSON patch; two more translate resources and write the annotation of batch resources. The
PriorityClass is the binding's parameter with `parameterNotFoundAction: Allow`, so that a missing class leaves the pod
as it is instead of refusing it. failurePolicy is always Ignore. docs/decisions/0019 says why.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from cotenant.admission.policies import limit_range_cel, resources_cel
from cotenant.admission.policies.cel import (
    add,
    concatenate_operations,
    conditional_operations,
    literal,
    pointer,
    selector_body,
    text,
)
from cotenant.admission.policies.label_texts import key_texts, patched_texts
from cotenant.admission.policies.overlap import (
    CLASS_FIELD,
    CLASS_NAME,
    Overlaps,
    Writes,
    are_namespaces_disjoint,
    disjoint,
    match_condition,
    unstable,
    wakes,
)
from cotenant.admission.policies.patch_fields import operations, refusal
from cotenant.admission.profile import Profile
from cotenant.base.kubernetes.protocol import (
    BIND_RESOURCE,
    MIRROR_ANNOTATION,
    PLACEHOLDER_NAMESPACE,
    REQUEST_BIND_ANNOTATION,
)
from cotenant.base.kubernetes.qos import QOS_LABEL
from cotenant.base.kubernetes.selector import Operator, Requirement

API_VERSION: Final = "admissionregistration.k8s.io/v1"
PREFIX: Final = "cotenant-profile-"
BATCH_POLICY: Final = "cotenant-batch-resources"
"""The policy that writes the annotation of batch resources for pods that no profile matches."""
PART_LABEL: Final = ("cotenant.dev/compiled-from", "profiles")
"""On every object that the compiler writes, to identify those of deleted profiles."""
NOT_OURS: Final = Requirement(
    "kubernetes.io/metadata.name", Operator.NOT_IN, frozenset({"kube-system", "cotenant", PLACEHOLDER_NAMESPACE})
)
LIMIT_RANGE_POLICY: Final = "cotenant-limit-range-defaults"
"""The policy that removes what a LimitRange added beside batch or mid resources; it runs once per LimitRange."""
_LONGEST_NAME: Final = 253
_NO_STATIC_POD: Final = (
    f"!has(object.metadata.annotations) || !({text(MIRROR_ANNOTATION)} in object.metadata.annotations)"
)

GENERAL_LOSSES: Final = (
    "warnings to the pod's creator, and the annotation cotenant.dev/profiles",
    "requests and limits from a workload's annotation, and the scheduling gate of Reservations: they are not set",
    "old names of resources and annotations, such as koordinator.sh/batch-cpu: they are not renamed",
    "requests and limits of the whole pod (spec.resources): such a pod keeps cpu and memory",
    "updates of pods with the label pod.koordinator.sh/mutating-update, and labels that other webhooks add later",
    "fields that a profile leaves to another profile whose PriorityClass does not exist: neither sets them",
    "pods without cpu and memory that violate a LimitRange or quota: only the API server explains the refusal",
    "every check of pods, quotas and slo-controller-config: nothing is refused",
)
"""Effects of the webhook in every cluster that no policy can express."""

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PolicyLoss:
    """A part of a profile that its policy does not express; `whole` means that the profile has no policy at all."""

    profile: str
    field: str
    reason: str
    whole: bool = False


@dataclass(frozen=True, slots=True)
class CompiledProfiles:
    """Policies and bindings by name, the names of the compiled profiles, and what the policies cannot express."""

    objects: tuple[Json, ...]
    compiled: tuple[str, ...]
    losses: tuple[PolicyLoss, ...] = ()


def compile_profiles(profiles: Sequence[Profile], api_version: str = API_VERSION) -> CompiledProfiles:
    """Return the policies for these profiles; every part that a policy cannot express is among the losses."""
    losses = [loss for profile in profiles if (loss := _unsupported_profile_loss(profile))]
    stated = _without_lost(sorted(profiles, key=lambda p: p.name), losses)
    while True:
        writes = {p.name: Writes.of(p) for p in stated}
        # Profiles whose way to give way to others would depend on the order in which the API server runs policies
        order_losses: list[PolicyLoss] = []
        for profile in stated:
            for other in Overlaps.of(profile, stated, writes).profiles:
                near = [p for p in stated if not disjoint(p, profile) and not are_namespaces_disjoint(p, other)]
                if keys := unstable(other, (writes[p.name] for p in near)):
                    selects = f"selects by labels that profiles write: {', '.join(keys)}"
                    reason = f"may match the same pods as profile {other.name}, which {selects}"
                    order_losses.append(PolicyLoss(profile.name, "selector", reason, whole=True))
                    break
        if not order_losses:
            break
        losses += order_losses
        stated = _without_lost(stated, order_losses)
    # The annotation of batch resources on pods that ask for them by themselves
    batch = _policy_body(BATCH_POLICY, api_version, None, [resources_cel.annotation()], {})
    # The policy that runs again after the LimitRanger did; the annotation follows what it moves
    patches = [limit_range_cel.without_given(), resources_cel.annotation()]
    again = _policy_body(LIMIT_RANGE_POLICY, api_version, None, patches, {"paramKind": limit_range_cel.PARAMETER})
    variables = limit_range_cel.variables(pending for profile in stated if (pending := _pending(profile)))
    again["spec"] |= {"reinvocationPolicy": "IfNeeded", "variables": variables}
    bound = _policy_binding(again, None, api_version)
    # without a name and a namespace: all of the pod's own
    bound["spec"]["paramRef"] = {"selector": {}, "parameterNotFoundAction": "Allow"}
    objects = [batch, _policy_binding(batch, None, api_version), again, bound]
    for profile in stated:
        overlaps = Overlaps.of(profile, stated, writes)
        losses += [*_lost_to_others(profile, overlaps, stated, writes), *_patch_losses(profile)]
        policy = _policy(profile, overlaps, api_version)
        objects += [policy, _policy_binding(policy, profile, api_version)]
    compiled = tuple(profile.name for profile in stated)
    return CompiledProfiles(tuple(objects), compiled, tuple(sorted(losses, key=lambda x: x.profile)))


def _without_lost(profiles: Sequence[Profile], losses: Sequence[PolicyLoss]) -> list[Profile]:
    names = {loss.profile for loss in losses}
    return [profile for profile in profiles if profile.name not in names]


def _unsupported_profile_loss(profile: Profile) -> PolicyLoss | None:
    """Return why no policy can express the profile; None if one can."""
    if profile.percent not in (0, 100):
        reason = f"{profile.percent}%: a policy cannot select pods at random; set 100% or use the webhook"
        return PolicyLoss(profile.name, "probability", reason, whole=True)
    if len(PREFIX + profile.name) > _LONGEST_NAME:
        return PolicyLoss(profile.name, "metadata.name", "is too long for a policy's name", whole=True)
    name = _class_of(profile)
    if name is not None and (not isinstance(name, str) or not name or set(name) & set("/%") or name in (".", "..")):
        return PolicyLoss(profile.name, "priorityClassName", "is not a valid name of a PriorityClass", whole=True)
    return None


def _class_of(profile: Profile) -> Any:
    patch = profile.patch.get("spec") or {}
    if CLASS_NAME in patch:
        return patch[CLASS_NAME] or ""
    return profile.priority_class or None


def _lost_to_others(
    profile: Profile, overlaps: Overlaps, profiles: Sequence[Profile], writes: Mapping[str, Writes]
) -> Iterator[PolicyLoss]:
    """Yield fields not written if a later profile also matches, and pods that match only by a label written to them.

    A field that the later profile writes from the pod's own text is also lost: the text lacks what this profile writes.
    """
    for other in overlaps.yields_to:
        later = writes[other.name]
        replaced = later.fields.keys() - later.reads
        if lost := sorted(writes[profile.name].fields.keys() - replaced):
            reason = f"not written on pods that also match the profile {other.name}"
            reason += "" if later.reads.isdisjoint(lost) else "; that profile derives its own fields without this value"
            yield PolicyLoss(profile.name, ", ".join(lost), reason)
    for other in profiles:
        if other.name == profile.name or are_namespaces_disjoint(profile, other):
            continue
        if keys := sorted(set(wakes(writes[other.name], profile))):
            reason = f"not written on pods that match only by labels that the profile {other.name} writes"
            yield PolicyLoss(profile.name, ", ".join(f"metadata.labels.{key}" for key in keys), reason)


def _patch_losses(profile: Profile) -> Iterator[PolicyLoss]:
    """Yield the fields of the patch, and of the profile's annotations, that are left out."""
    if profile.requests_bind:
        field = f"metadata.annotations.{REQUEST_BIND_ANNOTATION}"
        yield PolicyLoss(profile.name, field, f"a policy cannot add {BIND_RESOURCE}: let pods request it themselves")
    for name in profile.patch:
        if name not in ("metadata", "spec"):
            yield PolicyLoss(profile.name, f"patch.{name}", "is not a field of a pod's metadata or spec")
    for name in profile.patch.get("metadata") or {}:
        if name not in ("labels", "annotations"):
            yield PolicyLoss(profile.name, f"patch.metadata.{name}", "only labels and annotations are compiled")
        elif (patch := profile.patch["metadata"][name]) != {} and not patched_texts(patch):
            reason = "only an object of strings without directives is compiled"
            yield PolicyLoss(profile.name, f"patch.metadata.{name}", reason)
    for name, value in (profile.patch.get("spec") or {}).items():
        if name != CLASS_NAME and (why := refusal(name, value)):
            yield PolicyLoss(profile.name, f"patch.spec.{name}", why)


def _policy(profile: Profile, overlaps: Overlaps, api_version: str) -> Json:
    # Other profiles are judged in the patches: in matchConditions the API server gives no namespaceObject.
    yields = [_no_match(other) for other in overlaps.yields_to]
    not_translated = [*yields, *(_no_match(other) for other in overlaps.translates)]
    writes = []
    for name, write in _writes(profile):
        others = [_no_match(other) for other in overlaps.fields.get(name, ())]
        writes.append(conditional_operations(" && ".join(others), write) if others else write)
    patches = []
    if profile.percent and writes:
        patch = concatenate_operations(writes)
        patches.append(conditional_operations(" && ".join(yields), f"(\n{patch}\n)") if yields else patch)
    if not profile.skips_resources:
        patches.append(resources_cel.translation(not_translated))
    patches.append(resources_cel.annotation())
    class_name = _class_of(profile) if profile.percent else None
    parameter = {"paramKind": {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}} if class_name else {}
    return _policy_body(PREFIX + profile.name, api_version, profile, patches, parameter)


def _no_match(profile: Profile) -> str:
    return f"!{match_condition(profile)}"


def _policy_body(name: str, api_version: str, profile: Profile | None, patches: list[str], more: Json) -> Json:
    selectors = (profile.namespace_selector, profile.selector) if profile else (None, None)
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    return {
        "apiVersion": api_version,
        "kind": "MutatingAdmissionPolicy",
        "metadata": _metadata(name),
        "spec": {
            **more,
            "failurePolicy": "Ignore",
            "reinvocationPolicy": "Never",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "namespaceSelector": selector_body(selectors[0], NOT_OURS),
                "objectSelector": selector_body(selectors[1]),
                "resourceRules": [{**pods, "scope": "Namespaced"}],
            },
            "matchConditions": [{"name": "no-static-pod", "expression": _NO_STATIC_POD}],
            "variables": resources_cel.variables(),
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}} for patch in patches],
        },
    }


def _policy_binding(policy: Json, profile: Profile | None, api_version: str) -> Json:
    name = policy["metadata"]["name"]
    spec: Json = {"policyName": name}
    if profile is not None and "paramKind" in policy["spec"]:
        spec["paramRef"] = {"name": _class_of(profile), "parameterNotFoundAction": "Allow"}
    kind = "MutatingAdmissionPolicyBinding"
    return {"apiVersion": api_version, "kind": kind, "metadata": _metadata(name), "spec": spec}


def _metadata(name: str) -> Json:
    labels = {"app.kubernetes.io/managed-by": "cotenant", "app.kubernetes.io/part-of": "cotenant"}
    return {"name": name, "labels": labels | dict([PART_LABEL])}


def _pending(profile: Profile) -> str:
    """Return CEL for whether the profile matches the pod and has yet to set its class; "" if it sets none."""
    if not profile.percent:
        return ""
    if name := _class_of(profile):
        class_condition = f"has(object.spec.{CLASS_NAME}) && object.spec.{CLASS_NAME} == {text(name)}"
    elif profile.qos_class:
        class_condition = (
            f"{text(QOS_LABEL)} in variables.labels && variables.labels[{text(QOS_LABEL)}] == {text(profile.qos_class)}"
        )
    else:
        return ""
    return f"({match_condition(profile)} && !({class_condition}))"


def _writes(profile: Profile) -> Iterator[tuple[str, str]]:
    """Yield (field, JSON patch operations in CEL) for each field of the profile."""
    for texts in key_texts(profile):
        yield from texts.operations()
    patch = profile.patch.get("spec") or {}
    if profile.scheduler_name and "schedulerName" not in patch:
        yield "spec.schedulerName", add(pointer("spec", "schedulerName"), literal(profile.scheduler_name))
    if name := _class_of(profile):
        policy = 'has(params.preemptionPolicy) ? params.preemptionPolicy : "PreemptLowerPriority"'
        values = ((CLASS_NAME, literal(name)), ("priority", "params.value"), ("preemptionPolicy", policy))
        yield CLASS_FIELD, "(" + " + ".join(add(pointer("spec", key), value) for key, value in values) + ")"
    for field, value in patch.items():
        if field != CLASS_NAME and not refusal(field, value):
            yield from operations(value, "spec", field)
