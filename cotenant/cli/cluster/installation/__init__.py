"""The steps of `cotenant install` and `cotenant uninstall`: manifests -> observe -> plan (pure) -> send.

`manifests` reads what the package ships. `plan` compares it with the cluster and reports what definitions of other
owners lack. `cluster` and `removal` read and write the cluster.
"""
