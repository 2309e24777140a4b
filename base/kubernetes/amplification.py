"""Nodes whose allocatable an annotation amplified beyond the machine: their real and their amplified amounts. Pure.

The annotations are `raw-allocatable` {"cpu": "64"} and `resource-amplification-ratio` {"cpu": 1.2}. Source:
Koordinator's `apis/extension`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Final, TypeVar

from cotenant.base.json_documents.json_decoders import readable_object
from cotenant.base.kubernetes.pod_request import parse_readable_quantities
from cotenant.base.kubernetes.protocol import AMPLIFICATION_RATIO_ANNOTATION, RAW_ALLOCATABLE_ANNOTATION

NameT = TypeVar("NameT", bound=str)
LARGEST_RATIO: Final = 100
"""A ratio beyond this is taken for a slip."""


def raw_allocatable(annotations: Mapping[str, str]) -> dict[str, int]:
    """Return allocatable before amplification: cpu in millicores, others in whole units, without unreadable amounts."""
    return parse_readable_quantities(readable_object(annotations.get(RAW_ALLOCATABLE_ANNOTATION, "")))


def machine_allocatable(allocatable: Mapping[NameT, int], annotations: Mapping[str, str]) -> dict[NameT | str, int]:
    """Return `allocatable` before amplification: amounts of `raw_allocatable` replace those of the same name."""
    return dict(allocatable) | raw_allocatable(annotations)


def amplification_of(annotations: Mapping[str, str], resource: str) -> Fraction:
    """Return the ratio by which the node's amount of a resource is amplified, exactly as written in the annotation.

    The ratio is 1 if the annotation lacks the resource or has no number from 1 to 100 for it.
    """
    ratio = readable_object(annotations.get(AMPLIFICATION_RATIO_ANNOTATION, "")).get(resource)
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not math.isfinite(ratio):
        return Fraction(1)
    return Fraction(str(ratio)) if 1 <= ratio <= LARGEST_RATIO else Fraction(1)
