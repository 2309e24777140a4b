"""`cotenant version`: what runs here. Also the example of a command module."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any, Final

from cotenant import __version__
from cotenant.cli.command import examples, new_app
from cotenant.cli.output import DocumentFormat, DocumentOption, print_document

app = new_app()

PACKAGES: Final = {
    "base": ("numpy", "structlog", "prometheus-client", "msgspec"),
    "cli": ("typer", "rich", "PyYAML"),
    "scan": ("prometheus-api-client", "requests", "pyarrow", "fsspec"),
    "analytics": ("pandas", "scikit-learn", "statsmodels"),
    "cluster": ("kubernetes",),
    "dashboard": ("dash", "dash-ag-grid", "dash-mantine-components", "plotly", "uvicorn", "fastapi"),
}
"""Distributions by the extra that brings them."""


@app.command(epilog=examples("cotenant version", "cotenant version -o json"))
def version(output: DocumentOption = DocumentFormat.TABLE) -> None:
    """Show the version, Python, platform and optional packages."""
    print_document(describe(), output)


def describe() -> dict[str, Any]:
    """Version, Python, platform, and the installed version (or None) of each package by extra."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "packages": {extra: {name: installed(name) for name in names} for extra, names in PACKAGES.items()},
    }


def installed(distribution: str) -> str | None:
    """The distribution's version, None when it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
