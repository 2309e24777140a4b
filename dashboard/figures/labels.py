"""People's words for codes in chips, filters and lists; addresses, the API and exports have the codes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from cotenant.base.reasons import Reason
from cotenant.recommender.model.finding import FindingKind
from cotenant.recommender.model.steps import Ready

LABELS: Final[Mapping[str, str]] = {
    **{code: code.value.removeprefix("autopilot-").replace("-", " ") for code in (*Reason, *FindingKind)},
    Ready.WHOLE: "ready",
    Ready.FIRST_STEP: "in steps",
    Ready.SECOND_PERSON: "second person",
    Ready.NOTHING: "no change",
    Reason.OBSERVED_MAXIMUM: "highest seen",
    Reason.WITHIN_DEAD_BAND: "too small a change",
    Reason.OOM_BUMP: "after an OOM kill",
    Reason.FLOOR: "smallest allowed",
    Reason.QOS_CLASS: "keeps QoS class",
    Reason.LIMIT_RANGE: "bound of LimitRange",
    Reason.HPA_SOLVED: "with its HPA",
    Reason.HPA_UNSOLVED: "HPA unsolved",
    Reason.HPA_ON_RESOURCE: "HPA on the resource",
    Reason.NO_PEAK: "no pronounced peak",
    Reason.NO_SKILL: "no better than last week",
    Reason.NO_WINDOW: "no more pods needed",
    Reason.UNCOVERED: "coverage too low",
    Reason.LADDER_RECOMMENDATION_ROSE: "more is recommended now",
    FindingKind.UNSCHEDULABLE: "fits on no node",
    FindingKind.IDLE_GPU: "idle GPU",
    FindingKind.OVERSIZED_GPU: "oversized GPU",
    FindingKind.UNMEASURED_GPU: "unmeasured GPU",
}
"""Code -> label of at most 25 characters, no two alike."""


def label(code: str) -> str:
    """The label of a code; any other text stands for itself."""
    return LABELS.get(code, code)
