"""Every error that cotenant raises on purpose: one tree below CotenantError, in the order of its branches.

An error says what happened (`message`), to which object, and what helps (`fix`). People see its text unchanged.
"""

from __future__ import annotations


class CotenantError(Exception):
    """Base class of all errors of cotenant; `fix` is one sentence or command that helps, or ""."""

    exit_code = 1

    def __init__(self, message: str, *, fix: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix


class UsageError(CotenantError):
    """The caller requested something that does not exist or is not possible."""

    exit_code = 2


class KeyTaken(UsageError):
    """The idempotency key of a request was already used for a different request; nothing was done."""


class UnseenVersion(UsageError):
    """An approval lacks the version that the person read of the object, which may have changed since (HTTP 428)."""


class SettingsError(UsageError):
    """A setting is unknown or outside its domain."""


class FrameError(UsageError):
    """A column of a DataFrame is missing or has an invalid value; `column` names it."""

    def __init__(self, column: str, message: str, *, fix: str = "") -> None:
        super().__init__(message, fix=fix)
        self.column = column


class QuantityError(UsageError):
    """A text is not a Kubernetes quantity, or exceeds the documented limits."""


class SourceError(CotenantError):
    """A metric source failed."""


class SourceUnreachable(SourceError):
    """The source cannot be reached: no connection, unknown host name, timeout, or an unverified certificate."""


class SourceForbidden(SourceError):
    """The source responded with 401 or 403."""


class SourceLimit(SourceError):
    """The source refused the query as too large; a smaller one may be accepted."""


class SourceTooLong(SourceLimit):
    """The text of the query is too long for the source or a proxy before it; a shorter text may be accepted."""


class SourceProtocol(SourceError):
    """The metric source's response does not follow its protocol."""


class SourceUnfit(SourceError):
    """The source mixes several clusters, or its labels do not show whose usage it is; `fix` names the setting."""


class ClusterError(CotenantError):
    """The Kubernetes API failed; `status` and `answer` are those of its response, None and "" without a response.

    `retry_after_seconds` is the pause that the server requests; 0 if it requests none.
    """

    status: int | None = None
    answer: str = ""
    retry_after_seconds: float = 0.0


class ClusterForbidden(ClusterError):
    """The Kubernetes API responded with 401, or with 403 because of a missing right."""


class ClusterConflict(ClusterError):
    """The Kubernetes API responded with 409: the object changed since the read, or another manager owns the field."""


class ClusterAbsent(ClusterError):
    """The Kubernetes API responded with 404: the object of a write, its namespace or its kind does not exist."""


class ClusterNamespaceGone(ClusterAbsent):
    """The namespace of a write does not exist (404); other objects of the kind can probably be written."""


class ClusterObjectGone(ClusterAbsent):
    """The object of a write was deleted (404); other objects of its kind can probably be written."""


class ClusterExpired(ClusterError):
    """The Kubernetes API responded with 410: the resourceVersion is too old, the collection must be listed again."""


class ClusterUnreachable(ClusterError):
    """The Kubernetes API gave no complete response: connection refused, cut or silent."""


class ClusterInvalid(ClusterError):
    """The Kubernetes API found a request invalid (400, 413, 422): schema, size, admission or a failed patch `test`."""


class ClusterDenied(ClusterInvalid):
    """The Kubernetes API responded to a write with 403 although no right is missing: a rule refuses this object.

    Admission webhooks and policies, quotas and pod security do so; other objects of the kind can probably be written.
    """


class NotLeader(ClusterError):
    """This process does not hold the Lease: the write was not sent."""


class StoreError(CotenantError):
    """The store, ledger or another file cannot be read or written."""


class StoreCorrupt(StoreError):
    """A stored file does not have the content that its name promises; any file but the ledger's was set aside."""


class StoreForbidden(StoreError):
    """The file system or bucket denies this process reading or writing; the message names the path."""


class StoreBusy(StoreError):
    """Another process is writing the ledger, or too many queries run at once; nothing was done."""


class StoreConflict(StoreBusy):
    """Another writer changed the content between the read and the conditional write; nothing was overwritten."""


class NodeUnreadable(CotenantError):
    """The node's files could not be read in this tick: no file descriptors left, or proc and cgroups are missing."""


class NotDelivered(CotenantError):
    """A receiver did not accept a summary; its URL is a secret and is not in the message."""


class NoData(CotenantError):
    """There are no data for the request; the message has the reason."""


class NotEnoughHistory(NoData):
    """The history has too few days; the message says how many there are and how many are needed."""
