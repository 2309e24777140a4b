"""EDGE: removes an installation: the objects with our label and what we wrote into nodes, and nothing else.

Rights are removed first, so that a running manager writes no more, then our amounts on nodes. Definitions and
namespaces are removed last, because the objects in them are removed with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Final

from cotenant.base.errors import (
    ClusterAbsent,
    ClusterConflict,
    ClusterDenied,
    ClusterError,
    ClusterInvalid,
    ClusterUnreachable,
)
from cotenant.base.kube import KubeClient, Writer
from cotenant.base.kubernetes.intent import Address, Delete
from cotenant.base.kubernetes.models.metadata import LabelledObject
from cotenant.base.kubernetes.protocol import PLACEHOLDER_NAMESPACE, SYSTEM_NAMESPACE
from cotenant.base.progress import Progress
from cotenant.changes.change_ledger import ANCHOR
from cotenant.changes.soak.stop_switch import read_switch, switch_address
from cotenant.cli.cluster.installation import leftovers
from cotenant.cli.cluster.installation.cluster import FIELD_MANAGER, WAIT_SECONDS, wait_until
from cotenant.cli.cluster.installation.manifests import Manifest
from cotenant.cli.cluster.installation.plan import is_ours
from cotenant.cli.cluster.installation.restoration import EVERYTHING, OurWrites, restoring_patch
from cotenant.scheduler_ext.rebalance.published_outlooks import outlooks_address

MADE: Final = (
    Address("coordination.k8s.io/v1", "leases", "cotenant-manager", SYSTEM_NAMESPACE),
    Address("coordination.k8s.io/v1", "leases", "cotenant-recorder", SYSTEM_NAMESPACE),
    Address("v1", "configmaps", "cotenant-status", SYSTEM_NAMESPACE),
    outlooks_address(SYSTEM_NAMESPACE),
)
"""Objects that components create for themselves, in a namespace that may be somebody else's."""

AUDIT_LOG: Final = Address("v1", "configmaps", ANCHOR, SYSTEM_NAMESPACE)
"""Keeps the head of the audit log, by which `cotenant audit verify` finds rows that were cut off."""
_SWITCH: Final = switch_address(SYSTEM_NAMESPACE)
"""The autopilot's stop switch. It is kept while it stops: a later installation must not act against a person's word."""
_OF_THE_SYSTEM: Final = frozenset({"kube-root-ca.crt"})
_HOLDINGS: Final = ("configmaps", "secrets", "pods", "services", "persistentvolumeclaims")
"""What would be missed if its namespace went."""
_TRIES: Final = 3
"""Of a patch whose object somebody else changes at the same time."""
_HOLDER_NOTE: Final = "held by "
_RUNS_ON: Final = "which keeps running and writes removed objects again: end it, then run cotenant uninstall again"
_RULES_END_SECONDS: Final = 10
"""An API server applies an admission rule for some moments after the rule is removed."""


class Fate(StrEnum):
    """The outcome of an uninstallation for one object."""

    DELETE = "delete"
    GIVE_BACK = "give back"
    FOREIGN = "foreign"
    KEEP = "keep"
    REFUSED = "refused"
    """The server would not let us; the note says why."""


@dataclass(frozen=True, slots=True)
class Removal:
    """The effect of an uninstallation on one object; `by_rule` is True if an admission rule refused the removal."""

    component: str
    address: Address
    fate: Fate
    note: str = ""
    uid: str = ""
    ours: OurWrites = EVERYTHING
    """Names of the values of ours to remove, if the object belongs to somebody else and is restored."""
    by_rule: bool = False
    """True if an admission rule refused the removal; that rule may be one of ours, which is removed too."""

    def row(self) -> dict[str, str]:
        """Return the removal as the cells of a row of the table `plan.STEPS`."""
        return {"component": self.component, "object": str(self.address), "state": self.fate.value, "note": self.note}


def plan_removals(
    client: KubeClient,
    shipped: Sequence[Manifest],
    progress: Progress,
    *,
    stored: bool,
    audit_log: bool = False,
    everything: bool = False,
) -> list[Removal]:
    """Return the planned removals and restorations in the order of their execution: CRDs and namespaces come last.

    With `stored`, CRDs are removed together with their stored objects; with `audit_log`, also the audit log's
    ConfigMap; with `everything`, every object with our label, also one that no manifest names. An object that may not
    be read becomes a row with the reason.
    """
    progress.stage("looking at the cluster", len(shipped))
    leaving = [AUDIT_LOG] if audit_log else []
    with suppress(ClusterError):  # a switch that cannot be read stays
        leaving += [] if read_switch(client, SYSTEM_NAMESPACE) else [_SWITCH]
    removals: list[Removal] = []
    for manifest in reversed(shipped):
        find = partial(_removal, client, manifest, stored=stored, leaving=leaving)
        removals += rows_or_refusal(client, manifest.component, manifest.address, find)
        progress.advance()
    last = [r for r in removals if r.address.resource in ("customresourcedefinitions", "namespaces")]
    first = [r for r in removals if r not in last]
    if any(m.component == "rbac" for m in shipped):
        first += generated_object_removals(client, [*MADE, *leaving])
        if everything:
            # The removals of all other objects with our label. Objects of our own definitions are removed or kept
            # together with these.
            planned_addresses = {r.address for r in removals}
            own_kinds = {
                r.address.name
                for r in last
                if r.address.resource == "customresourcedefinitions" and r.fate is not Fate.FOREIGN
            }
            without = {*planned_addresses, *MADE, AUDIT_LOG}
            labelled = [
                unread_removal(client, address.resource, address, uid)
                if isinstance(uid, ClusterError)
                else Removal(address.resource, address, Fate.DELETE, "has our label", uid)
                for address, uid in leftovers.labelled_objects(client, without, own_kinds)
            ]
        else:
            labelled = []
        first += labelled
        # What we wrote into objects of others, except those that are removed.
        removed = {removal.address for removal in labelled}
        for kind in leftovers.WRITTEN:
            given_back = rows_or_refusal(client, kind.resource, kind, partial(restored_objects, client, kind))
            first += [row for row in given_back if row.address not in removed]
    return [*first, *last]


def remove(client: KubeClient, removals: Sequence[Removal], progress: Progress) -> list[Removal]:
    """Carry out the removals and wait until the objects are gone; return the rows, with refusals.

    A process that was still ending may have recreated its Lease or its status, so these are searched for once more. A
    Lease that has a holder again is refused: a process with rights of its own runs on and writes what was removed.
    """
    rows = carry_out(client, removals, progress)
    progress.stage("waiting until the deleted objects are gone", len(rows))
    seconds = WAIT_SECONDS
    for number, row in enumerate(rows):
        if row.fate is Fate.DELETE:
            rows[number] = _attempt_removal(client, row, partial(_await_gone, seconds=seconds))
            seconds = 1.0 if rows[number].fate is Fate.REFUSED else seconds  # one long wait for all
        progress.advance()
    refused = {row.address for row in rows if row.fate is Fate.REFUSED}
    again = generated_object_removals(client, MADE) if any(row.component == "rbac" for row in removals) else []
    last = [
        replace(row, fate=Fate.REFUSED, note=f"{row.note}, {_RUNS_ON}") if row.note.startswith(_HOLDER_NOTE) else row
        for row in again
        if row.address not in refused
    ]
    return [*rows, *carry_out(client, last, progress)]


def carry_out(client: KubeClient, removals: Sequence[Removal], progress: Progress) -> list[Removal]:
    """Delete and restore objects; return the rows, with refusals, which do not stop the other removals.

    A removal that an admission rule refuses is retried each second, for at most ten seconds.
    """
    progress.stage("removing", len(removals))
    rows = []
    for removal in removals:
        rows.append(_attempt_removal(client, removal, _send))
        progress.advance()
    for _ in range(_RULES_END_SECONDS):
        if not any(row.by_rule for row in rows):
            break
        time.sleep(1.0)
        pairs = zip(removals, rows, strict=True)
        rows = [_attempt_removal(client, removal, _send) if row.by_rule else row for removal, row in pairs]
    return rows


def _attempt_removal(client: KubeClient, removal: Removal, act: Callable[[KubeClient, Removal], None]) -> Removal:
    """Run `act` if the row asks for one; return the row, or after an error a refused one with the reason."""
    if removal.fate not in (Fate.DELETE, Fate.GIVE_BACK):
        return removal
    try:
        act(client, removal)
    except ClusterError as error:
        by_rule = isinstance(error, ClusterDenied)
        return replace(removal, fate=Fate.REFUSED, note=_why(client, error), by_rule=by_rule)
    return removal


def _why(client: KubeClient, error: ClusterError) -> str:
    """Return why one object failed; raise ClusterUnreachable if the API server does not answer at all."""
    if isinstance(error, ClusterUnreachable):
        client.get("/version")
    return f"{error.message.rstrip('.')}. {error.fix}".strip()


def _send(client: KubeClient, removal: Removal) -> None:
    """Delete exactly the observed object, by UID, or remove our values from the present object of another owner."""
    writer = Writer(client, FIELD_MANAGER)
    if removal.fate is Fate.DELETE:
        grace_seconds = 0 if removal.address.namespace == PLACEHOLDER_NAMESPACE else None
        writer.send(Delete(removal.address, removal.uid, grace_seconds=grace_seconds))
        return
    for tries_left in reversed(range(_TRIES)):
        live = client.get(removal.address.path)
        patch = restoring_patch(removal.address, live, removal.ours) if live else None
        if patch is None:
            return
        try:
            writer.send(patch)
        except ClusterAbsent:  # it is gone, and what we wrote with it
            return
        except (ClusterInvalid, ClusterConflict):  # somebody changed between our look and our patch what it removes
            if not tries_left:
                raise
        else:
            if removal.address.resource != "nodes" or patch.subresource:
                return


def _await_gone(client: KubeClient, removal: Removal, seconds: float) -> None:
    address = removal.address

    def is_gone() -> bool:  # one of the same name that somebody made since is another one
        live = client.get(address.path)
        return live is None or live["metadata"].get("uid") != removal.uid

    wait_until(is_gone, f"{address} is gone", seconds)


def unread_removal(client: KubeClient, component: str, address: Address, error: ClusterError) -> Removal:
    """Return the row of an object or kind that the server does not let us read."""
    return Removal(component, address, Fate.REFUSED, f"not read: {_why(client, error)}")


def rows_or_refusal(
    client: KubeClient, component: str, address: Address, find: Callable[[], Iterable[Removal]]
) -> list[Removal]:
    """Return the rows that `find` returns, or a refused one if the server does not let us read an object or kind."""
    try:
        return list(find())
    except ClusterError as error:
        return [unread_removal(client, component, address, error)]


def restored_objects(client: KubeClient, kind: Address, ours: OurWrites = EVERYTHING) -> Iterator[Removal]:
    """Yield for each object of a kind into which cotenant wrote the row by which those values are given back."""
    for address, what in leftovers.written_into(client, kind, ours):
        yield Removal(address.resource, address, Fate.GIVE_BACK, what, ours=ours)


def _removal(
    client: KubeClient, manifest: Manifest, *, stored: bool, leaving: Collection[Address]
) -> Iterator[Removal]:
    if (live := client.get(manifest.address.path)) is None:
        return
    if not is_ours(live):
        yield Removal(manifest.component, manifest.address, Fate.FOREIGN, "not ours, left alone")
        return
    uid = str(live["metadata"]["uid"])
    fate, note = Fate.DELETE, ""
    if manifest.kind == "CustomResourceDefinition":
        spec = live["spec"]
        served = next(version["name"] for version in spec["versions"] if version["served"])
        if count := len(client.list(f"/apis/{spec['group']}/{served}/{spec['names']['plural']}", LabelledObject)):
            fate = Fate.DELETE if stored else Fate.KEEP
            stored_note = f"stored objects of this kind: {count}; --crds removes them"
            note = f"stored objects removed with it: {count}" if stored else stored_note
    if manifest.kind == "PersistentVolumeClaim":
        fate, note = Fate.KEEP, "history, results and the ledger; delete it with kubectl"
    if manifest.kind == "Namespace" and (holdings := _objects_to_keep(client, manifest.address.name, leaving)):
        fate, note = Fate.KEEP, f"holds {', '.join(holdings)}"
    yield Removal(manifest.component, manifest.address, fate, note, uid)


def _objects_to_keep(client: KubeClient, namespace: str, leaving: Collection[Address]) -> list[str]:
    """Return, as resource/name, the objects of others in our namespace that are not `leaving`: they keep the namespace.

    A PersistentVolumeClaim counts even if it is ours, and so does the audit log.
    """
    names = []
    for resource in _HOLDINGS:
        for item in client.list(f"/api/v1/namespaces/{namespace}/{resource}", LabelledObject):
            address = Address("v1", resource, item.metadata.name, namespace)
            ours = (item.metadata.labels or {}).get("app.kubernetes.io/managed-by") == "cotenant"
            if address in leaving or (ours and resource != "persistentvolumeclaims"):
                continue
            if item.metadata.name not in _OF_THE_SYSTEM:
                beside = " (head of the audit log; --audit-log removes it)" if address == AUDIT_LOG else ""
                names.append(f"{resource}/{item.metadata.name}{beside}")
    return names


def generated_object_removals(client: KubeClient, own: Sequence[Address]) -> list[Removal]:
    """Return the removals of existing objects that components made, without a manifest and without our label.

    The note of a Lease names its holder.
    """

    def removals_of(address: Address) -> Iterator[Removal]:
        if live := client.get(address.path):
            holder = (live.get("spec") or {}).get("holderIdentity")
            note = f"{_HOLDER_NOTE}{holder}" if holder else ""
            yield Removal("rbac", address, Fate.DELETE, note, str(live["metadata"]["uid"]))

    return [row for a in own for row in rows_or_refusal(client, "rbac", a, partial(removals_of, a))]
