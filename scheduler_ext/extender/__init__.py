"""The scheduler extender: the HTTP API that kube-scheduler calls, and the rules that refuse or prefer nodes.

    watcher (a process of its own) -> table -> frames -> snapshot -> rules -> decide -> app

The watcher mirrors the cluster and turns it into one row per node; the serving process applies frames of changed rows
to columns and swaps them by reference, so that an answer never waits for a change. Everything between is pure.
"""
