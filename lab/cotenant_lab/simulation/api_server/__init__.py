"""An embedded Kubernetes API server for laptops, the demo and tests: only the verbs that the product uses.

`server` (HTTP, accounts) -> `routes` (paths, rights, discovery) -> `verbs` and `watches` (what a request does) ->
`managed_fields`, `writes`, `admission` (what an object becomes; pure) over `schema` -> `state` (objects, versions,
history). One contract suite tests it and the real server (`tests/contract`). It deliberately lacks CEL rules and
formats, defaults of built-in kinds, admission except for LimitRanges and quotas on pods, controllers, and graceful
deletion.
"""

from cotenant_lab.simulation.api_server.rights import ADMINISTRATOR, AccessRule, Account
from cotenant_lab.simulation.api_server.server import EmbeddedServer

__all__ = ["ADMINISTRATOR", "AccessRule", "Account", "EmbeddedServer"]
