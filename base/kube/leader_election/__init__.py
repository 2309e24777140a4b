"""Leader election by a Lease: one of several replicas leads; the decision about a candidate's next step is pure."""
