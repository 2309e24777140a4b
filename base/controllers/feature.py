"""States of the manager's features, and how they are shown: a ConfigMap, a log line, a metric. Pure.

A feature is one controller. It is up, or has one reason why not: its first lists are not complete, its view is stale, a
right or a CRD is missing, the API server does not respond, it failed. A failure of one feature does not affect others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import msgspec

from cotenant.base.controllers.contract import MANAGED_BY, MANAGED_BY_LABEL
from cotenant.base.errors import (
    ClusterAbsent,
    ClusterError,
    ClusterForbidden,
    ClusterNamespaceGone,
    ClusterObjectGone,
    ClusterUnreachable,
    CotenantError,
    NoData,
    NotLeader,
    SourceError,
    SourceForbidden,
    StoreError,
    StoreForbidden,
)
from cotenant.base.kubernetes.intent import Address, Apply
from cotenant.base.kubernetes.moments import moment
from cotenant.base.text import stable_text

STATUS_CONFIG_MAP: Final = "cotenant-status"
LEFT_OUT_STATE: Final = "left-out"
"""Key of the ConfigMap that lists objects which the manager leaves out, and why; absent while there are none."""


class ControllerCondition(StrEnum):
    """The condition of a feature, such as Up or Stale; the value is the `reason` of a Kubernetes condition."""

    UP = "Up"
    DRY_RUN = "DryRun"
    """The feature decides, but writes nothing because writing is not enabled."""
    STANDBY = "Standby"
    """Another replica leads."""
    WAITING = "Waiting"
    """The first lists are not complete."""
    NO_DATA = "NoData"
    """There is nothing to publish: no run of the pipeline has ended, or no history is stored."""
    STALE = "Stale"
    """The feature's inputs are too old, or the clock is uncertain; nothing is changed."""
    FORBIDDEN = "Forbidden"
    """A right is missing."""
    ABSENT = "Absent"
    """A kind that the feature needs is not installed."""
    UNREACHABLE = "Unreachable"
    """The API server, the metric source or the store gives no usable answer."""
    DEGRADED = "Degraded"
    """The feature works, but some objects were refused or some configuration is wrong."""
    FAILED = "Failed"
    """A bug of cotenant; the log has the traceback."""

    @property
    def works(self) -> bool:
        """True if the feature decides and, if it is permitted, writes."""
        return self in {ControllerCondition.UP, ControllerCondition.DRY_RUN, ControllerCondition.DEGRADED}

    @property
    def broken(self) -> bool:
        """True if an operator has to act before the feature works."""
        return not self.works and self not in {
            ControllerCondition.STANDBY,
            ControllerCondition.WAITING,
            ControllerCondition.NO_DATA,
        }


@dataclass(frozen=True, slots=True)
class FeatureState:
    """The condition of a feature, its message, and the Unix time since which it applies."""

    feature: str
    condition: ControllerCondition
    message: str = ""
    since_seconds: float = 0.0
    of_source: bool = False
    """True if a metric source or the store fails; a starting manager does not wait for these."""

    def same(self, other: FeatureState | None) -> bool:
        """Return whether condition and message are the same, regardless of when they began.

        Messages that differ only by a request's identifier or by a duration are the same.
        """
        if other is None or self.condition is not other.condition:
            return False
        return self.message == other.message or stable_text(self.message) == stable_text(other.message)


def condition_of_failure(error: Exception) -> ControllerCondition:
    """Return the condition of a feature that could not decide because of this error; it never counts as working."""
    condition = condition_of_error(error)
    if condition is not ControllerCondition.DEGRADED:
        return condition
    return ControllerCondition.UNREACHABLE if isinstance(error, ClusterError) else ControllerCondition.FAILED


def is_of_source(error: Exception) -> bool:
    """Return whether the error comes from a metric source or the store, not from the API server or cotenant itself."""
    return isinstance(error, SourceError | StoreError)


def condition_of_error(error: Exception) -> ControllerCondition:
    """Return the condition of a feature that has decided, but one of whose writes failed with this error."""
    kinds: dict[type[Exception], ControllerCondition] = {
        ClusterNamespaceGone: ControllerCondition.DEGRADED,
        ClusterObjectGone: ControllerCondition.DEGRADED,
        ClusterForbidden: ControllerCondition.FORBIDDEN,
        SourceForbidden: ControllerCondition.FORBIDDEN,
        StoreForbidden: ControllerCondition.FORBIDDEN,
        SourceError: ControllerCondition.UNREACHABLE,
        StoreError: ControllerCondition.UNREACHABLE,
        ClusterAbsent: ControllerCondition.ABSENT,
        ClusterUnreachable: ControllerCondition.UNREACHABLE,
        NotLeader: ControllerCondition.STANDBY,
        NoData: ControllerCondition.NO_DATA,
    }
    usual = ControllerCondition.DEGRADED if isinstance(error, CotenantError) else ControllerCondition.FAILED
    return next((condition for kind, condition in kinds.items() if isinstance(error, kind)), usual)


def message_of(error: Exception) -> str:
    """Return an error's message and its fix in one line."""
    fix = error.fix if isinstance(error, CotenantError) else ""
    what = str(error) or type(error).__name__
    return f"{what.rstrip('.')}. {fix}" if fix else what


def status_intent(namespace: str, states: Mapping[str, FeatureState]) -> Apply:
    """Return the write of the ConfigMap with every feature's state: `kubectl get configmap cotenant-status -o yaml`."""
    address = Address("v1", "configmaps", STATUS_CONFIG_MAP, namespace)
    data = {}
    for name, state in sorted(states.items()):
        condition: dict[str, Any] = {
            "type": "Available",
            "status": str(state.condition.works),
            "reason": state.condition.value,
            "message": state.message,
            "lastTransitionTime": moment(state.since_seconds),
        }
        data[name] = msgspec.json.encode(condition).decode()
    body = address.manifest("ConfigMap", {"labels": {MANAGED_BY_LABEL: MANAGED_BY}}, data=data)
    return Apply(address, body, why="a feature's state changed")
