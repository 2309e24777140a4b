"""cotenant: online services and batch work on the same Kubernetes nodes, safely.

Read `docs/architecture.md` for the architecture, then `cotenant.core.model` for the vocabulary that all packages share.
"""

__version__ = "0.1.0"
