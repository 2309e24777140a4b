"""EDGE: `cotenant config convert reservation`: reads old Reservation objects from a file, prints the current form."""

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
    """The format in which converted objects are printed."""

    YAML = "yaml"
    JSON = "json"


@app.callback(epilog=examples("cotenant config convert reservation sketch.yaml | kubectl apply -f -"))
def _family() -> None:
    """Convert objects from an old form to the current one."""


@app.command(
    epilog=examples(
        "cotenant config convert reservation sketch.yaml", "cotenant config convert reservation - -o json  # from stdin"
    )
)
def reservation(
    file: Annotated[str, typer.Argument(metavar="FILE", help="YAML or JSON file with Reservations; - reads stdin.")],
    output: Annotated[
        ObjectFormat, typer.Option("--output", "-o", help="Format of the printed objects.")
    ] = ObjectFormat.YAML,
) -> None:
    """Convert namespaced Reservations with resourceOwners and timeToLiveInSeconds to the cluster-scoped form.

    Changes of meaning are printed on stderr. A field without a counterpart is an error, and nothing is written.
    """
    from cotenant.scheduler_ext.sketch import convert_reservation

    results = [convert_reservation(document) for document in documents(file)]
    for index, result in enumerate(results):
        for note in result.notes:
            message(f"{result.body['metadata'].get('name', '')}: {note}")
        if index and output is ObjectFormat.YAML:
            sys.stdout.write("---\n")
        print_document(result.body, DocumentFormat(output.value))
