"""Objects after a patch as an API server gives them back: quantities are in the server's own form."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jsonpatch

from cotenant_lab.simulation.api_server.builtin import BuiltIn
from cotenant_lab.simulation.api_server.quantities import canonical_quantities

_TYPES = BuiltIn()


def patched(body: Mapping[str, Any], operations: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """A workload or a pod after an RFC 6902 patch; JsonPatchTestFailed where one of its tests fails."""
    patched_body = jsonpatch.apply_patch(body, [dict(operation) for operation in operations])
    kind = "Deployment" if "template" in patched_body["spec"] else "Pod"
    stored: dict[str, Any] = canonical_quantities(_TYPES.kind(kind), patched_body)
    return stored
