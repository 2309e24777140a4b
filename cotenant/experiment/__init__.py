"""A simulated cluster: what each way of lending capacity to batch pods does to services, batch jobs and nodes."""
