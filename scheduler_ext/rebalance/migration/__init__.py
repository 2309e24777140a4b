"""Migration: how a pod that should move is moved: PodMigrationJobs, arbitrated and carried out step by step.

    plan -> jobs -> arbitration -> capacity (a Reservation) -> eviction -> the successor takes the capacity -> ready

Pure. All state is in the objects: whoever looks at them next goes on where the last one stopped. Names, phases,
conditions and reasons are Koordinator's (`pkg/descheduler/controllers/migration`).
"""
