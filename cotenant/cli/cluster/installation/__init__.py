"""What `cotenant install` and `cotenant uninstall` do: manifests -> observe -> plan (pure) -> send.

`manifests` reads what the package ships, `plan` compares it with what is there and says what somebody else's definition
lacks, `cluster` and `removal` are the edges.
"""
