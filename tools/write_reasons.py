"""Print docs/reasons.md from the enums, so that page and code cannot part."""

from __future__ import annotations

from cotenant.base.reasons import SENTENCES
from cotenant.base.usage.quality import DEFECT_SENTENCES


def page() -> str:
    lines = [
        "# Reasons",
        "",
        "Every value, and every value that is missing, carries one of these codes.",
        "",
        "| code | meaning |",
        "|---|---|",
    ]
    lines += [f"| `{reason.value}` | {sentence} |" for reason, sentence in SENTENCES.items()]
    lines += [
        "",
        "# Data quality",
        "",
        "What can be wrong with incoming samples, and how it is handled; counted on every pull.",
        "",
    ]
    lines += ["| code | handling |", "|---|---|"]
    lines += [f"| `{defect.value}` | {sentence} |" for defect, sentence in DEFECT_SENTENCES.items()]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    print(page(), end="")
