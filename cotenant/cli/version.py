"""`cotenant version`: shows the versions of cotenant, Python and packages. Also the example of a command module."""

from __future__ import annotations

import platform
from typing import Any

from cotenant.base.commands.call import DOCUMENT, CommandCall, command
from cotenant.base.commands.extras import PACKAGES, installed_version
from cotenant.base.commands.output import print_document
from cotenant.base.commands.session import new_app
from cotenant.base.version import __version__

app = new_app()


@command(app, DOCUMENT, "cotenant version", "cotenant version -o json")
def version(call: CommandCall) -> None:
    """Show the version, Python, platform and optional packages."""
    print_document(describe(), call.output)


def describe() -> dict[str, Any]:
    """Return version, Python, platform, and the installed version (or None) of each package by extra."""
    return {
        "version": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "platform": platform.platform(),
        "packages": {extra: {name: installed_version(name) for name in names} for extra, names in PACKAGES.items()},
    }
