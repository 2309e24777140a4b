"""How far the peaks of a day lie above a node's base where few days of one's own say it: tails of public traces.

By shape (`peak_records`): scores that were exceeded with the rates EXCEEDANCES, as they are and standardised. Generated
by `python -m bench peak_prior`, which names the traces (azure_v1, azure_v2, google2011, google2019: CC BY 4.0;
machines of service_telemetry: MIT) and why others have no part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

EXCEEDANCES: Final = (0.5, 0.3, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001, 0.0005)


@dataclass(frozen=True, slots=True)
class Tail:
    """Rising points of one shape that are exceeded with the rates EXCEEDANCES.

    scores: in spreads, which nearly are shares of the node's limit (of memory: of its highest use); scaled: z = (score
    - median) / (p90 - median) of a population's scores.
    """

    scores: tuple[float, ...]
    scaled: tuple[float, ...]


TAILS: Final[Mapping[str, Tail]] = {
    "highest of 14 days": Tail(
        (-0.039, -0.017, -0.006, 0.001, 0.017, 0.053, 0.085, 0.154, 0.229, 0.27, 0.27),
        (0.0, 0.45, 0.7, 1.0, 1.3, 1.8, 2.09, 2.55, 3.29, 3.34, 3.72),
    ),
    "record": Tail(
        (-0.064, -0.026, -0.007, 0.006, 0.04, 0.109, 0.178, 0.281, 0.444, 0.49, 0.5),
        (0.0, 0.44, 0.68, 1.0, 1.34, 1.86, 2.16, 2.68, 3.36, 3.46, 3.82),
    ),
    "second highest": Tail(
        (-0.043, -0.012, 0.0, 0.02, 0.063, 0.157, 0.292, 0.323, 0.475, 0.523, 0.531),
        (0.0, 0.39, 0.61, 1.0, 1.4, 1.98, 2.43, 2.94, 3.59, 3.68, 4.06),
    ),
    "highest of 7 days": Tail(
        (-0.038, -0.012, -0.001, 0.01, 0.039, 0.079, 0.15, 0.212, 0.368, 0.412, 0.415),
        (0.0, 0.43, 0.65, 1.0, 1.4, 2.03, 2.38, 3.07, 3.5, 4.11, 4.74),
    ),
    "mean of records": Tail(
        (-0.031, -0.002, 0.009, 0.044, 0.096, 0.199, 0.266, 0.379, 0.512, 0.568, 0.569),
        (0.0, 0.37, 0.63, 1.0, 1.42, 2.01, 2.5, 2.92, 3.56, 3.83, 4.28),
    ),
    "last day": Tail(
        (0.092, 0.161, 0.245, 0.306, 0.336, 0.424, 0.528, 0.623, 0.657, 1.348, 1.348),
        (0.0, 0.35, 0.61, 1.0, 1.4, 1.89, 2.4, 2.86, 3.38, 3.81, 4.25),
    ),
    "class level": Tail(
        (0.144, 0.265, 0.431, 0.486, 0.6, 0.626, 0.645, 0.653, 0.658, 0.665, 0.668),
        (0.0, 0.38, 0.63, 1.0, 1.3, 1.67, 1.92, 2.35, 2.77, 3.42, 3.64),
    ),
    "highest of 14 days x factor": Tail(
        (-0.066, -0.037, -0.017, 0.01, 0.038, 0.118, 0.221, 0.277, 0.277, 0.277, 0.277),
        (0.0, 0.39, 0.62, 1.0, 1.23, 1.82, 2.59, 3.62, 4.63, 4.63, 5.05),
    ),
    "14 and 7 days x factor": Tail(
        (-0.056, -0.032, -0.011, 0.015, 0.039, 0.118, 0.221, 0.277, 0.326, 0.326, 0.326),
        (0.0, 0.39, 0.64, 1.0, 1.29, 1.86, 2.79, 3.98, 5.68, 5.68, 5.68),
    ),
    "14 days and last day x factor": Tail(
        (-0.028, -0.005, 0.01, 0.041, 0.099, 0.15, 0.289, 0.33, 0.33, 0.353, 0.353),
        (0.0, 0.35, 0.57, 1.0, 1.24, 1.97, 2.77, 3.67, 6.26, 6.26, 6.37),
    ),
    "last day x factor": Tail(
        (0.005, 0.028, 0.057, 0.103, 0.182, 0.295, 0.375, 0.44, 0.44, 0.552, 0.552),
        (0.0, 0.29, 0.57, 1.0, 1.3, 1.91, 2.53, 4.01, 6.22, 6.22, 6.41),
    ),
}
