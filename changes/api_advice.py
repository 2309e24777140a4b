"""EDGE: the advice to show with an API server error that names no fix."""

from __future__ import annotations

from typing import Final

from cotenant.base.errors import ClusterConflict, ClusterForbidden, ClusterInvalid, CotenantError

MOVED: Final = "Somebody changed the object after the review: review the change again."
_QUOTA: Final = "Have the ResourceQuota raised, or request less."
_LIMITS: Final = "Have the LimitRange changed, or request what it allows."
_RIGHT: Final = "Ask for the rights that `cotenant install --print --components applier` prints, or write a bundle."
_WORDS: Final = (
    ("exceeded quota", _QUOTA),
    ("usage per Container is", _LIMITS),
    ("usage per Pod is", _LIMITS),
    ("limit to request ratio", _LIMITS),
    ("admission webhook", "Ask whoever runs the webhook, or change the field that its message names."),
    ("rejected our request due to an error in our request", MOVED),
)
"""Parts of the server's messages, each with a fix; the last is the message for a JSON patch with a failed `test`."""


def advice(error: CotenantError) -> str:
    """Return a fix by the error's message or kind, else its own fix, else a general one; "" if there is none."""
    for part, step in _WORDS:
        if part in error.message:
            return step
    kinds = ((ClusterConflict, MOVED), (ClusterForbidden, _RIGHT))
    kind_step = next((step for kind, step in kinds if isinstance(error, kind)), "")
    of_invalid = "Change the named field, or use another method." if isinstance(error, ClusterInvalid) else ""
    return kind_step or error.fix or of_invalid


def describe_with_advice(error: CotenantError) -> str:
    """Return the error's message and its fix in one line."""
    step = advice(error)
    return f"{error.message.rstrip('.')}. {step}" if step else error.message
