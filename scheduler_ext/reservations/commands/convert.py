"""EDGE: `cotenant config convert reservation`: an object in an old form, from a file, in today's on stdout."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from cotenant.base.commands.files import documents
from cotenant.base.commands.output import DocumentFormat, message, print_document
from cotenant.base.commands.session import examples, new_app

app = new_app()


class ObjectFormat(StrEnum):
    """The output format of objects."""

    YAML = "yaml"
    JSON = "json"


@app.callback(epilog=examples("cotenant config convert reservation sketch.yaml | kubectl apply -f -"))
def _family() -> None:
    """Convert objects of old versions."""


@app.command(
    epilog=examples(
        "cotenant config convert reservation sketch.yaml", "cotenant config convert reservation - -o json  # from stdin"
    )
)
def reservation(
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON; - reads stdin.")],
    output: Annotated[
        ObjectFormat, typer.Option("--output", "-o", help="How to write the objects.")
    ] = ObjectFormat.YAML,
) -> None:
    """Turn namespaced Reservations with resourceOwners and timeToLiveInSeconds into today's cluster-scoped ones.

    What changed in meaning is said on stderr. A field that has no counterpart is an error, and nothing is written.
    """
    from cotenant.scheduler_ext.sketch import convert_reservation

    results = [convert_reservation(document) for document in documents(file)]
    for index, result in enumerate(results):
        for note in result.notes:
            message(f"{result.body['metadata'].get('name', '')}: {note}")
        if index and output is ObjectFormat.YAML:
            sys.stdout.write("---\n")
        print_document(result.body, DocumentFormat(output.value))
