"""Every error that cotenant raises on purpose: one tree below CotenantError, in the order of its branches.

An error says what happened (`message`), to which object, and what helps (`fix`). It is shown to people as it stands.
"""

from __future__ import annotations


class CotenantError(Exception):
    """Base of all; `fix` is one sentence or one command that helps, or empty."""

    exit_code = 1

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


class UsageError(CotenantError):
    """The caller asked for something that does not exist or cannot be."""

    exit_code = 2


class KeyTaken(UsageError):
    """The key of a request was used before for another one; nothing was done."""


class UnseenVersion(UsageError):
    """An approval does not name the version of the object that was read, which may have changed since (428)."""


class SettingsError(UsageError):
    """A setting is unknown or outside its domain."""


class FrameError(UsageError):
    """A column of a DataFrame is missing or holds a value that it cannot hold; `column` names it."""

    def __init__(self, column: str, message: str, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.column = column


class QuantityError(UsageError):
    """A text is not a Kubernetes quantity, or lies outside the documented caps."""


class SourceError(CotenantError):
    """A metric source failed."""


class SourceUnreachable(SourceError):
    """No connection, name not found, time-out or a certificate that does not verify."""


class SourceForbidden(SourceError):
    """The source answered 401 or 403."""


class SourceLimit(SourceError):
    """The source refused the query as too large; a smaller one may pass."""


class SourceTooLong(SourceLimit):
    """The text of the query is too long for the source or a proxy before it; a shorter text may pass."""


class SourceProtocol(SourceError):
    """The answer is not what the protocol promises."""


class SourceUnfit(SourceError):
    """Several clusters, or labels that hide whose usage it is; `fix` says what to set there or here."""


class ClusterError(CotenantError):
    """The Kubernetes API failed; status and words of its answer, None and "" where there was none.

    retry_after_seconds: how long the server wants to be left alone; 0 where it does not say.
    """

    status: int | None = None
    answer: str = ""
    retry_after_seconds: float = 0.0


class ClusterForbidden(ClusterError):
    """The Kubernetes API answered 401, or 403 for a missing right."""


class ClusterConflict(ClusterError):
    """The Kubernetes API answered 409: the object changed since it was read, or another manager owns the field."""


class ClusterAbsent(ClusterError):
    """The Kubernetes API answered 404 to a write: the object, its namespace or its kind is not there."""


class ClusterNamespaceGone(ClusterAbsent):
    """404 because of the namespace alone: other objects of the kind may well be written."""


class ClusterObjectGone(ClusterAbsent):
    """404 because of the object alone: it was deleted, others of the kind may well be written."""


class ClusterExpired(ClusterError):
    """The Kubernetes API answered 410: the version is too old, the collection must be listed again."""


class ClusterUnreachable(ClusterError):
    """No complete answer of the Kubernetes API: connection refused, cut or silent."""


class ClusterInvalid(ClusterError):
    """The Kubernetes API answered 400 or 422: schema, admission or a failed `test` of a patch."""


class ClusterDenied(ClusterInvalid):
    """The Kubernetes API answered 403 to a write although no right is missing: a rule refuses this very object.

    Admission webhooks and policies, quotas and pod security answer so; other objects of the kind may well be written.
    """


class NotLeader(ClusterError):
    """We do not hold the Lease: the write was not sent."""


class StoreError(CotenantError):
    """History cannot be read or written."""


class StoreCorrupt(StoreError):
    """A stored file does not hold what its name promises; it was set aside."""


class StoreForbidden(StoreError):
    """The file system or bucket answered that we may not read or write; names the path."""


class StoreBusy(StoreError):
    """Another process writes the ledger, or too many ask at once; nothing was done."""


class StoreConflict(StoreBusy):
    """Another writer changed what was read, between our reading and our conditional write; nothing was overwritten."""


class NodeUnreadable(CotenantError):
    """The files of a node could not be read in this tick: descriptors ran out, or proc and cgroups are not there."""


class NotDelivered(CotenantError):
    """A receiver did not take a summary; its address is a secret and is not in the message."""


class NoData(CotenantError):
    """No data to answer with; the message has the reason."""


class NotEnoughHistory(NoData):
    """There is history, but of too few days; the message says how many there are and how many are needed."""
