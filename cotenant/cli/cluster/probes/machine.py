"""EDGE: checks of Python, packages and settings of this machine."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable, Iterator

from cotenant.base import measures
from cotenant.base.commands.extras import BESIDE_ALL, PACKAGES, installed_version
from cotenant.base.settings.load import Loaded, SettingSource
from cotenant.cli.cluster.probes.outcome import Probe, ProbeFinding, ProbeOutcome, ProbeState
from cotenant.settings import Settings

OLDEST_PYTHON = (3, 11)


def probes(load: Callable[[], Loaded[Settings]]) -> Iterator[ProbeFinding]:
    """Yield findings about Python, packages and settings, which `load` reads as every command does."""
    yield Probe("python", "the interpreter's version", required=True).run(python)
    yield Probe("packages", "the installed packages of every extra", required=True).run(packages)
    yield Probe("settings", "the settings file, COTENANT_ variables and --set", required=True).run(
        lambda: settings(load())
    )


def python() -> ProbeOutcome:
    """Check that Python is new enough."""
    interpreter = f"{platform.python_implementation()} {platform.python_version()} at {sys.executable}"
    if sys.version_info < OLDEST_PYTHON:
        return ProbeOutcome(ProbeState.FAILED, interpreter, "Install Python 3.11 or newer.")
    return ProbeOutcome(ProbeState.OK, interpreter)


def packages() -> ProbeOutcome:
    """Check that every extra of `cotenant[all]` is complete; a missing package only disables its commands."""
    missing = {extra: [n for n in names if installed_version(n) is None] for extra, names in PACKAGES.items()}
    lacking = {extra: names for extra, names in missing.items() if names}
    complete = ", ".join(extra for extra in PACKAGES if extra not in lacking)
    if lacking.keys() <= BESIDE_ALL:
        absent = f"; not installed, and seldom needed: {', '.join(lacking)}" if lacking else ""
        return ProbeOutcome(ProbeState.OK, f"complete: {complete}{absent}")
    detail = "; ".join(f"{extra} lacks {', '.join(names)}" for extra, names in lacking.items())
    state = ProbeState.FAILED if {"base", "cli"} & set(lacking) else ProbeState.WARNING
    return ProbeOutcome(state, detail, f'Install the missing packages: pip install "cotenant[{",".join(lacking)}]".')


def settings(loaded: Loaded[Settings]) -> ProbeOutcome:
    """Report that the settings are valid, and how many of them the file, variables and flags set."""
    counts = {
        s: measures.matching_count(o.source is s for o in loaded.origins.values())
        for s in SettingSource
        if s is not SettingSource.DEFAULT
    }
    detail = ", ".join(f"{count} by {source}" for source, count in counts.items() if count) or "only default values"
    return ProbeOutcome(ProbeState.OK, f"{len(loaded.origins)} settings: {detail}")
