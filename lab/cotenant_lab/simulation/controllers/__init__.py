"""Stand-ins for Kubernetes' own controllers: `cluster_controllers` carries out what the others decide."""
