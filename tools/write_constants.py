"""Print docs/constants.md from the table of former settings, so that page and table cannot part."""

from __future__ import annotations

from cotenant.base.settings.docs import constants_markdown

if __name__ == "__main__":
    print(constants_markdown(), end="")
