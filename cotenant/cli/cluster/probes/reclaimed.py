"""EDGE: checks of colocation profiles: namespaces that refuse their pods, and pods created without their profile."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from cotenant.base import measures
from cotenant.base.errors import ClusterError, UsageError
from cotenant.base.kube.live import LIMIT_RANGES, QUOTAS
from cotenant.base.kubernetes.models.pod import ProfiledPod
from cotenant.base.kubernetes.protocol import CONFIG_GROUP, NOT_ENDED
from cotenant.cli.cluster.probes.outcome import Probe, ProbeFinding, ProbeOutcome, ProbeState

if TYPE_CHECKING:
    from cotenant.admission.namespace_limits.demands import Demand
    from cotenant.admission.profile import Profile
    from cotenant.base.kube import KubeClient

PROFILES: Final = f"/apis/{CONFIG_GROUP}/clustercolocationprofiles"
PRIORITY_CLASSES: Final = "/apis/scheduling.k8s.io/v1/priorityclasses"
NAMESPACES: Final = "/api/v1/namespaces"
MOST_NAMED: Final = 5
FIX: Final = (
    "Give the ResourceQuota the scope NotBestEffort, take bounds of cpu and memory out of the LimitRange, or have the "
    "profile choose other namespaces (docs/webhooks.md)."
)

PODS: Final = "/api/v1/pods"
RECREATE: Final = (
    "Recreate the pods, for example by kubectl rollout restart, when the webhook answers; `cotenant status` shows "
    "whether it does."
)

Json = dict[str, Any]


def probes(client: KubeClient) -> Iterator[ProbeFinding]:
    """Yield two findings about namespaces and pods of colocation profiles; none without readable profiles."""
    try:
        bodies = client.list(PROFILES, dict[str, Any])
    except ClusterError:
        return
    if not bodies:
        return
    tried = "LimitRanges and ResourceQuotas of namespaces in which a profile makes batch or mid pods"
    yield Probe("reclaimed pods", tried).run(lambda: probe_namespace_limits(client, list(_profiles(bodies))))
    tried = "pods that a profile selects, and which fields of the profile they have"
    yield Probe("pods without their profile", tried).run(lambda: probe_unprofiled_pods(client, bodies))


def probe_namespace_limits(client: KubeClient, profiles: Sequence[Profile]) -> ProbeOutcome:
    """Check which namespaces refuse pods of these profiles, and which limit or quota refuses them."""
    from cotenant.admission.namespace_limits.demands import demands_of_quota, demands_of_range
    from cotenant.admission.profile import PriorityClassEntry

    classes = {
        str(priority_class["metadata"]["name"]): PriorityClassEntry(int(priority_class.get("value") or 0))
        for priority_class in client.list(PRIORITY_CLASSES, dict[str, Any])
    }
    demands: dict[str, list[Demand]] = defaultdict(list)
    for path, demands_of in ((LIMIT_RANGES, demands_of_range), (QUOTAS, demands_of_quota)):
        for body in client.list(path, dict[str, Any]):
            demands[str(body["metadata"].get("namespace"))] += demands_of(body)
    limit_range_names = [
        f"namespace {name}, profile {profile.name}: {why}"
        for name, labels in _namespace_labels(client).items()
        for profile in (profiles if demands[name] else ())
        for why in pod_refusal_reasons((name, labels), profile, classes, demands[name])
    ]
    if not limit_range_names:
        return ProbeOutcome(ProbeState.OK, "no namespace refuses the pods of a profile for their cpu or memory")
    return ProbeOutcome(ProbeState.WARNING, _first_named(limit_range_names, "; "), FIX)


def probe_unprofiled_pods(client: KubeClient, bodies: Sequence[Json]) -> ProbeOutcome:
    """Name pods that a profile selects and that were created while the webhook did not answer."""
    from cotenant.admission.unprofiled import CreatedPod, profile_since_seconds, unprofiled_pods

    since = {str(body["metadata"]["name"]): profile_since_seconds(body) for body in bodies}
    profiles = {profile.name: (profile, since[profile.name]) for profile in _profiles(bodies)}
    pods = (
        CreatedPod(
            pod.metadata.namespace,
            pod.metadata.name,
            pod.metadata.creation_timestamp.timestamp() if pod.metadata.creation_timestamp else None,
            pod.metadata.labels or {},
            pod.metadata.annotations or {},
            pod.spec.priority_class_name,
            pod.spec.scheduler_name,
        )
        for pod in client.list(PODS, ProfiledPod, fieldSelector=NOT_ENDED)
    )
    pod_names = [
        f"{pod.namespace}/{pod.name} (profile {profile.name})"
        for pod, profile in unprofiled_pods(pods, profiles, _namespace_labels(client))
    ]
    if not pod_names:
        return ProbeOutcome(ProbeState.OK, "no pod was created without the profile that selects it")
    sentence = f"the webhook was not called for {_first_named(pod_names, ', ')}: these pods run unchanged"
    return ProbeOutcome(ProbeState.WARNING, sentence, RECREATE)


def _first_named(names: Sequence[str], separator: str) -> str:
    more = f"{separator}and {measures.left_out_count(len(names), MOST_NAMED)} more" if len(names) > MOST_NAMED else ""
    return f"{separator.join(names[:MOST_NAMED])}{more}"


def _namespace_labels(client: KubeClient) -> dict[str, Mapping[str, str]]:
    return {
        str(body["metadata"]["name"]): body["metadata"].get("labels") or {}
        for body in client.list(NAMESPACES, dict[str, Any])
    }


def pod_refusal_reasons(
    namespace: tuple[str, Mapping[str, str]], profile: Profile, classes: Mapping[str, Any], demands: Sequence[Demand]
) -> Iterator[str]:
    """Yield why a namespace (name, labels) would or may refuse a pod of 1 core and 1 GiB with the profile applied."""
    from cotenant.admission.namespace_limits.demands import quota_warnings, refusals
    from cotenant.admission.pod_mutation import AdmissionCall, compute_mutation
    from cotenant.admission.view import ClusterView

    name, labels = namespace
    of_every_pod = replace(profile, selector=None, percent=100 if profile.percent else 0)
    amounts = {"cpu": "1", "memory": "1Gi"}
    container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    pod = {"metadata": {"name": "any"}, "spec": {"containers": [container]}}
    view = ClusterView((of_every_pod,), {name: labels}, classes)
    mutation = compute_mutation(pod, view, AdmissionCall("CREATE", name))
    yield from (problem.words for problem in refusals(mutation.pod, demands))
    yield from quota_warnings(mutation.pod, demands)


def _profiles(bodies: Sequence[Json]) -> Iterator[Profile]:
    """Yield the profiles that can be read; the others apply to no pod."""
    from cotenant.admission.profile import Profile

    for body in bodies:
        try:
            yield Profile.parse(body)
        except UsageError:
            continue
