"""Moves of pods that a person approves: PodMigrationJobs, written through the ledger."""
