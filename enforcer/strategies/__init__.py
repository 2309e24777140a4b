"""One file per strategy: pure functions (Observation, NodePolicy, state) -> Step, see `cotenant.enforcer.contract`."""
