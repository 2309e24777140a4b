"""Leader election: one leader among replicas, by a Lease; what a candidate does next is pure."""
