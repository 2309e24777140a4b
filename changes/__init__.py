"""Changes to the cluster that people accept; the CLI, the dashboard and the REST API call the same functions."""
