"""Python as an installation with some extras alone sees it: a program runs where all other distributions are absent.

`python -m tests.support.partial_install cli,scan scan --help` runs cotenant's command line so, and
`python -m tests.support.partial_install analytics -c CODE` a piece of code. "" are the base's dependencies alone.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from importlib.abc import MetaPathFinder
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def declared(extra: str = "") -> list[str]:
    """Requirements of pyproject.toml: of an extra, or of the base."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    return list(project["optional-dependencies"][extra] if extra else project["dependencies"])


def installed_with(extras: list[str]) -> set[str]:
    """Names of all distributions that pip brings for the base and these extras."""
    waiting = [Requirement(line) for extra in ("", *extras) for line in declared(extra)]
    packages: set[tuple[str, frozenset[str]]] = set()
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key not in packages:
            packages.add(key)
            waiting += _needed_by(requirement)
    return {name for name, _ in packages}


def _needed_by(requirement: Requirement) -> Iterator[Requirement]:
    try:
        lines = metadata.requires(requirement.name) or []
    except metadata.PackageNotFoundError:
        return  # not for this Python or system
    for needed in map(Requirement, lines):
        if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in ("", *requirement.extras)):
            yield needed


class AbsentModules(MetaPathFinder):
    """Finds no module of a distribution that is not among those named."""

    def __init__(self, present: set[str]) -> None:
        self._absent = {
            module
            for module, distributions in metadata.packages_distributions().items()
            if not present & {canonicalize_name(name) for name in distributions}
        }

    def find_spec(self, fullname: str, *_: object) -> None:
        """Raise ModuleNotFoundError for an absent one; leave every other module to the finders behind."""
        if fullname.partition(".")[0] in self._absent:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


def main(extras: str, *arguments: str) -> None:
    """Run a piece of code or the command line where only these extras are installed."""
    present = installed_with([extra for extra in extras.split(",") if extra]) | {"cotenant"}
    for name in [name for name in sys.modules if name.partition(".")[0] == "packaging"]:
        del sys.modules[name]  # only this module needed it
    sys.meta_path.insert(0, AbsentModules(present))
    if arguments[0] == "-c":
        exec(arguments[1], {"__name__": "__main__"})
        return
    from cotenant.cli.main import run

    sys.argv = ["cotenant", *arguments]
    run()


if __name__ == "__main__":
    main(*sys.argv[1:])
