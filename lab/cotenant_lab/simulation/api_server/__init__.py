"""An embedded Kubernetes API server for laptops, the demo and tests: the verbs that the product uses, and no others.

`server` (HTTP, accounts) -> `routes` (paths, rights, discovery) -> `verbs` and `watches` (what a request does) ->
`managed_fields`, `writes`, `admission` (what an object becomes; pure) over `schema` -> `state` (objects, versions,
history). One contract suite runs against it and against the real server (`tests/contract`). What it leaves to the real
one, on purpose: CEL rules and formats, defaults of built-in kinds, admission but for LimitRanges and quotas on pods,
controllers, graceful deletion.
"""

from cotenant_lab.simulation.api_server.rights import ADMINISTRATOR, AccessRule, Account
from cotenant_lab.simulation.api_server.server import EmbeddedServer

__all__ = ["ADMINISTRATOR", "AccessRule", "Account", "EmbeddedServer"]
