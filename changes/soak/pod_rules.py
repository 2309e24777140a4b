"""Check whether a workload's pods were harmed since a change, and whether any of them has its values. Pure.

Pods are found by their controllers, because labels may match others' pods too. Until a pod has the new values there is
no result, whatever the other pods do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

from cotenant.base.errors import UsageError
from cotenant.base.kubernetes.moments import moment_of
from cotenant.base.kubernetes.pod_wire import container_statuses
from cotenant.base.text import agree, counted
from cotenant.changes.decide.checks.rollout import Rollout, rollout_of
from cotenant.changes.decide.field_changes import address_of, given_to_new_pods
from cotenant.changes.decide.in_place import RESIZE, ResizeOutcome, answer, summarize_resize_answers
from cotenant.changes.decide.patches import TEMPLATE_PATHS
from cotenant.changes.decide.regression_check import MOST_RESTARTS
from cotenant.changes.model.annotated_resources import states
from cotenant.changes.model.change import Change, Write
from cotenant.changes.model.judgement import RuleResult, RuleVerdict

Json = Mapping[str, Any]
GONE: Final = "the workload is gone"
KILLS: Final = "OOM kills"
RESTARTS: Final = "restarts"
MISSING: Final = "missing replicas"
RESIZES: Final = "refused resizes"
POD_RULES: Final = (KILLS, RESTARTS, MISSING, GONE)
PROGRESS_SECONDS: Final = 600.0
"""A rollout that has created no pod for this long is stuck. Kubernetes' own progress deadline of a Deployment."""


def pod_results(
    change: Change, live: Json, pods: Sequence[Json], since_seconds: float, now_seconds: float
) -> list[RuleResult]:
    """Return the results of the rules about the workload's own pods since `since_seconds` (Unix time).

    During a rollout that progresses, the rule about replicas has no data. If there is no rollout and no pod has the new
    values, it has no data either, and the only other result is that about refused resizes.
    """
    rollout = rollout_of(live, change.kind)
    carrying = _carrying_count(change, rollout, pods, since_seconds)
    # The result of the rule about pods that were resized by the change; empty without any.
    if not (resized := _resized_pods(pods, change)):
        resizes = []
    else:
        refused, _ = summarize_resize_answers([answer(pod, write) for pod, write in resized], final=True)
        resizes = [_count_rule_result(RESIZES, int(bool(refused)), 0, "no resize refused", refused)]
    if not carrying and not (rollout and (rollout.behind or rollout.unread)):
        if rollout is None:
            why_none = ": the workload's next run gets the new values"
        elif not rollout.desired:
            why_none = ": the workload has no replicas"
        else:
            why_none = f": {rollout.still}" if rollout.still else ""
        return [_no_data(f"no pod has the new values yet{why_none}"), *resizes]
    restarted = (status for status in container_statuses(pods) if status.get("restartCount"))
    ends = (((status.get("lastState") or {}).get("terminated") or {}).get("finishedAt") for status in restarted)
    killed, restarts = kills_since(pods, since_seconds), sum(_seconds(end) >= since_seconds for end in ends)
    kills = agree(killed, "container was OOM-killed after the change", "containers were OOM-killed after the change")
    again = f"{counted(restarts, 'container')} restarted after the change"
    newest_seconds = max((_seconds(pod["metadata"].get("creationTimestamp")) for pod in pods), default=0.0)
    return [
        _count_rule_result(KILLS, killed, 0, "no OOM kill", kills),
        _count_rule_result(RESTARTS, restarts, MOST_RESTARTS, counted(restarts, "restart"), again),
        _replica_result(rollout, carrying, newest_seconds, now_seconds),
        *resizes,
    ]


def _replica_result(rollout: Rollout | None, carrying: int, newest_seconds: float, now_seconds: float) -> RuleResult:
    if rollout is None:
        sentence = agree(carrying, "pod of the workload has the new values", "pods of the workload have the new values")
        return RuleResult(MISSING, RuleVerdict.KEPT, words=sentence)
    if rollout.unread:
        return _no_data(rollout.unread)
    if rollout.behind or rollout.stuck:
        sentence = f"{rollout.updated} of {rollout.awaited} replicas have the present template"
        if not rollout.stuck and abs(now_seconds - newest_seconds) < PROGRESS_SECONDS:
            return _no_data(f"a rollout is in progress: {sentence}")
        bad = f"{sentence}, and the rollout does not progress: {rollout.stuck or 'no pod was created lately'}"
        missing = max(1, rollout.behind, rollout.unready)
        return RuleResult(MISSING, RuleVerdict.WORSE, after=missing, most=0, words=bad)
    some = f", {carrying} with the new values: {rollout.still}" if rollout.still else ""
    good = f"{rollout.ready} of {rollout.desired} replicas ready{some}"
    return _count_rule_result(MISSING, rollout.unready, 0, good, rollout.readiness)


def _no_data(sentence: str) -> RuleResult:
    return RuleResult(MISSING, RuleVerdict.NO_DATA, words=sentence)


def _count_rule_result(rule: str, count: int, most: int, good: str, bad: str) -> RuleResult:
    worse = count > most
    verdict = RuleVerdict.WORSE if worse else RuleVerdict.KEPT
    return RuleResult(rule, verdict, after=count, most=most, words=bad if worse else good)


def _carrying_count(change: Change, rollout: Rollout | None, pods: Sequence[Json], since_seconds: float) -> int:
    """Return how many pods have the new values, by the controller's count and by the pods themselves."""
    path, start = address_of(change.ref).path, f"/{'/'.join(TEMPLATE_PATHS[change.kind])}/"
    pointers = (pointer for write in change.writes if write.address.path == path for pointer in write.after)
    in_template = any(pointer.startswith(start) for pointer in pointers)  # and not only on pods or in an annotation
    counted = rollout.updated if rollout and in_template else 0
    is_uncounted = in_template and (rollout is None or rollout.updated is None)
    resized = {str(pod["metadata"].get("uid")): write for pod, write in _resized_pods(pods, change)}
    swaps = given_to_new_pods(change.writes)

    def carries(pod: Json) -> bool:
        write = resized.get(str(pod["metadata"].get("uid")))
        if write is not None:
            return answer(pod, write).answer is ResizeOutcome.DONE
        # Of a kind whose controller replaces no pod a new pod is of the present template.
        is_new = is_uncounted and _seconds(pod["metadata"].get("creationTimestamp")) >= int(since_seconds)
        lists = (pod["spec"].get(name) or () for name in ("containers", "initContainers"))
        now = {container["name"]: container.get("resources") for containers in lists for container in containers}
        swapped = [(now[name], swap) for name, swap in swaps.items() if name in now]
        return is_new or (bool(swapped) and all(states(resources, swap.after) for resources, swap in swapped))

    return max(counted or 0, sum(map(carries, pods)))


def _resized_pods(pods: Sequence[Json], change: Change) -> list[tuple[Json, Write]]:
    """Return the existing pods that the change resized, with their writes."""
    by_uid = {(pod.get("metadata") or {}).get("uid"): pod for pod in pods}
    return [(by_uid[w.uid], w) for w in change.writes if w.subresource == RESIZE and w.uid in by_uid]


def kills_since(pods: Sequence[Json], since_seconds: float, names: Collection[str] | None = None) -> int:
    """Count the containers that were OOM-killed since that time (Unix seconds); only those in `names`, if given."""
    statuses = (status for status in container_statuses(pods) if names is None or status.get("name") in names)
    return sum(
        any(end.get("reason") == "OOMKilled" and _seconds(end.get("finishedAt")) >= since_seconds for end in ends)
        for ends in map(_ends, statuses)
    )


def last_kills(pods: Sequence[Json]) -> dict[str, float]:
    """Return when (Unix seconds) each container of the pods was OOM-killed last, by its name."""
    kills: dict[str, float] = {}
    for status in container_statuses(pods):
        ends = [_seconds(end.get("finishedAt")) for end in _ends(status) if end.get("reason") == "OOMKilled"]
        name = str(status.get("name", ""))
        if ends:
            kills[name] = max(kills.get(name, 0.0), *ends)
    return kills


def _ends(status: Json) -> Iterator[Json]:
    """Yield how a container ended, before its last restart and now."""
    for state in ("lastState", "state"):
        if end := (status.get(state) or {}).get("terminated"):
            yield end


def _seconds(text: Any) -> float:
    try:
        return moment_of(text, "finishedAt") or 0.0
    except UsageError:
        return 0.0
