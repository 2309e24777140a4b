"""The scheduler extender: what kube-scheduler asks over HTTP, and by which rules a node is refused or preferred.

    watcher (a process of its own) -> table -> frames -> snapshot -> rules -> decide -> app

The watcher mirrors the cluster and turns it into one row a node; the serving process applies frames of changed rows to
columns and swaps them by reference, so that an answer never waits for a change. Everything between is pure.
"""
