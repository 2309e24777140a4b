"""Stand-ins for Kubernetes' own controllers: `cluster_controllers` carries out the decisions of the other modules."""
