"""One file a strategy: pure functions (Observation, NodePolicy, state) -> Step, see `enforcer.contract`."""
