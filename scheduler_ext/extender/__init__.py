"""The scheduler extender: the HTTP API that kube-scheduler calls, and the rules that refuse or rank nodes.

    watcher (a process of its own) -> table -> frames -> snapshot -> rules -> decide -> app

The watcher mirrors the cluster and computes one row per node; the serving process applies frames of changed rows to
columns and replaces its snapshot by reference, so that an answer never waits for a change. Everything in between is
pure.
"""
