"""Convert errors of libraries to ones with a fix: a missing package of an extra, a file that cannot be opened."""

from __future__ import annotations

from typing import Any, Final

from cotenant.base.errors import CotenantError, UsageError

PACKAGES: Final = {
    "base": ("numpy", "structlog", "prometheus-client", "msgspec"),
    "cli": ("typer", "rich", "PyYAML", "pyarrow", "duckdb"),
    "scan": ("prometheus-api-client", "promql-parser", "requests", "fsspec", "obstore"),
    "analytics": ("pandas", "scikit-learn", "scipy", "statsmodels", "holidays"),
    "cluster": ("kubernetes", "aiohttp", "jsonpatch", "cronsim"),
    "webhook": ("httptools", "uvloop", "cryptography"),
    "node": ("grpcio", "protobuf"),
    "dashboard": (
        "dash",
        "dash-ag-grid",
        "dash-mantine-components",
        "plotly",
        "uvicorn",
        "fastapi",
        "authlib",
        "joserfc",
        "itsdangerous",
    ),
    "mcp": ("mcp", "httpx2"),
    "distributed": ("distributed",),
    "demo": ("cotenant-lab",),
}
"""Distributions by the extra that brings them first: all that pyproject.toml declares."""

BESIDE_ALL: Final = frozenset({"mcp", "distributed", "demo"})
"""Extras that `cotenant[all]` leaves out: no cluster needs them."""

_IMPORTED_AS: Final = {"PyYAML": "yaml", "scikit-learn": "sklearn", "grpcio": "grpc", "protobuf": "google"}


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, or None if it is not installed."""
    from importlib import metadata  # takes a tenth of the time of a help text

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def part_of_lab(group: str, name: str) -> Any:
    """Return the object that the lab (extra `demo`) registers as an entry point under this group and name.

    Raise ModuleNotFoundError if the extra is not installed; `in_words` converts it to an error with a fix.
    """
    from importlib.metadata import entry_points  # takes a tenth of the time of a help text

    for point in entry_points(group=group, name=name):
        return point.load()
    raise ModuleNotFoundError(name="cotenant_lab")


def in_words(error: Exception) -> CotenantError | None:
    """Return the CotenantError to show for an error, such as a missing package or a denied file; None for a bug."""
    if isinstance(error, CotenantError):
        return error
    if isinstance(error, ModuleNotFoundError):
        module = (error.name or "").partition(".")[0]
        named_extras = ((name, extra) for extra, distributions in PACKAGES.items() for name in distributions)
        match = next(((n, e) for n, e in named_extras if module == _IMPORTED_AS.get(n, n.replace("-", "_"))), None)
        if match is None:
            return None
        return CotenantError(f"the package {match[0]} is not installed", fix=f'Run pip install "cotenant[{match[1]}]".')
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        problem = f"{error.filename}: {error.strerror}"
        return UsageError(problem, fix="Name a file that can be opened, or change the file's rights.")
    return None
