"""EDGE: `cotenant convert reservation`: an object in an old form, read from a file, in today's form on stdout."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cotenant.cli.command import examples, new_app
from cotenant.cli.output import DocumentFormat, message, print_document
from cotenant.model.errors import UsageError

app = new_app()


class Written(StrEnum):
    """How objects are written."""

    YAML = "yaml"
    JSON = "json"


@app.callback(epilog=examples("cotenant convert reservation sketch.yaml | kubectl apply -f -"))
def _family() -> None:
    """Turn objects in old forms into today's."""


@app.command(
    epilog=examples(
        "cotenant convert reservation sketch.yaml",
        "cotenant convert reservation - -o json  # from stdin",
    )
)
def reservation(
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - reads stdin.")],
    output: Annotated[Written, typer.Option("--output", "-o", help="How to write the objects.")] = Written.YAML,
) -> None:
    """Turn namespaced Reservations with resourceOwners and timeToLiveInSeconds into today's cluster-scoped ones.

    What changed in meaning is said on stderr. A field that has no counterpart is an error, and nothing is written.
    """
    from scheduler_ext.sketch import converted

    results = [converted(document) for document in documents(file)]
    for index, result in enumerate(results):
        for note in result.notes:
            message(f"{result.body['metadata'].get('name', '')}: {note}")
        if index and output is Written.YAML:
            sys.stdout.write("---\n")
        print_document(result.body, DocumentFormat(output.value))


def documents(file: str) -> list[Any]:
    """The documents of a YAML or JSON file; UsageError when it cannot be read, is no YAML or is empty."""
    import yaml

    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text("utf-8")
        found = [document for document in yaml.safe_load_all(text) if document is not None]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}", fix="Give the path of a YAML or JSON file.") from error
    except (yaml.YAMLError, RecursionError) as error:
        raise UsageError(f"{file} is not YAML: {error}", fix="Look at the line that is named.") from error
    if not found:
        raise UsageError(f"{file} holds no object", fix="Give a file with a Reservation.")
    return found
