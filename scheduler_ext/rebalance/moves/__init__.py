"""Moves of pods that a person approves: PodMigrationJobs that are created and recorded in the ledger."""
