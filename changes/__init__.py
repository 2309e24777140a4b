"""Changes to the cluster that a person asks for: the same functions behind the CLI, the dashboard and the REST API."""
