"""Every error that cotenant raises on purpose, as one tree.

    CotenantError                 exit code 1
    |-- UsageError                exit code 2: the caller's words are wrong
    |   |-- SettingsError         unknown key, value out of its domain
    |   `-- QuantityError         not a Kubernetes quantity
    |-- SourceError               a metric source did not give what was asked
    |   |-- SourceUnreachable     no connection, time-out, TLS
    |   |-- SourceForbidden       401, 403
    |   |-- SourceLimit           the server refused a query as too large; the caller may split it
    |   `-- SourceProtocol        an answer that is not the protocol's
    |-- ClusterError              the Kubernetes API did not give what was asked
    |   `-- ClusterForbidden      401, 403: names the right that is missing
    |-- StoreError                history cannot be read or written
    |   `-- StoreCorrupt          a file is not what its name says; it was set aside, not overwritten
    |-- NotDelivered              a summary did not reach its receiver; what was computed stands
    `-- NoData                    the question is good, the history holds no answer (says which of the five reasons)

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


class SettingsError(UsageError):
    """A setting is unknown or outside its domain."""


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


class SourceProtocol(SourceError):
    """The answer is not what the protocol promises."""


class ClusterError(CotenantError):
    """The Kubernetes API failed."""


class ClusterForbidden(ClusterError):
    """The Kubernetes API answered 401 or 403."""


class StoreError(CotenantError):
    """History cannot be read or written."""


class StoreCorrupt(StoreError):
    """A stored file does not hold what its name promises; it was set aside."""


class NotDelivered(CotenantError):
    """A receiver did not take a summary; its address is a secret and is not in the message."""


class NoData(CotenantError):
    """Nothing to answer with; the message says why."""
