"""One file a strategy: pure functions (Observation, NodePolicy, state) -> Step, see `cotenant.enforcer.contract`."""
