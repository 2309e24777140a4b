"""Options of commands that ask a Prometheus: how it is reached, and which series are meant."""

from __future__ import annotations

from typing import Annotated

import typer

from cotenant.base.errors import UsageError

TokenOption = Annotated[
    str | None, typer.Option("--bearer-token-file", metavar="FILE", help="File with a bearer token.")
]
HeaderOption = Annotated[list[str] | None, typer.Option("--header", "-H", metavar="NAME:VALUE", help="Further header.")]
LabelOption = Annotated[
    list[str] | None,
    typer.Option("--prometheus-label", "-l", metavar="NAME=VALUE", help="Label that every series carries."),
]


def prometheus_flags(
    url: str | None, bearer_token_file: str | None, headers: list[str] | None, labels: list[str] | None
) -> dict[str, str | dict[str, str] | None]:
    """The settings that these options override; UsageError for a header or label that is no pair."""
    return {
        "profiler.prometheus.url": url,
        "profiler.prometheus.bearer_token_file": bearer_token_file,
        "profiler.prometheus.headers": _pairs(headers, ":", "--header"),
        "profiler.prometheus.labels": _pairs(labels, "=", "--prometheus-label"),
    }


def _pairs(texts: list[str] | None, separator: str, option: str) -> dict[str, str] | None:
    """["A: b"] -> {"A": "b"}; None when the option was not given."""
    if not texts:
        return None
    parts = [text.partition(separator) for text in texts]
    bad = next((text for text, part in zip(texts, parts, strict=True) if not part[1] or not part[0].strip()), None)
    if bad is not None:
        raise UsageError(f"{option} {bad!r} is not NAME{separator}VALUE")
    return {name.strip(): value.strip() for name, _, value in parts}
