"""Moves of pods by PodMigrationJobs, which are arbitrated and executed step by step.

    plan -> jobs -> arbitration -> capacity (a Reservation) -> eviction -> the successor takes the capacity -> ready

Pure. All state is in the objects, so that any manager continues where the last one stopped. Names, phases, conditions
and reasons are Koordinator's (`pkg/descheduler/controllers/migration`).
"""
