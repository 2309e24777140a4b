"""The manager's rebalancing features: rounds of the descheduler, and the execution of PodMigrationJobs."""
