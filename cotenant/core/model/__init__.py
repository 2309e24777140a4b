"""The shared data types of all packages: read this package first.

Frozen dataclasses and pure algorithms that two or more packages need. Units stand in names (`_millicores`, `_bytes`,
`_seconds`) or follow from `Resource.unit`. Nothing here reads a file, a clock or the network.

Order to read: `resource`, `identity`, `kubernetes.quantity`, `kubernetes.qos`, `usage.usage`, `cluster`,
`usage.portrait`, `usage.forecast`, `colocation.reclaimable`, `recommendation`; `reasons` names every non-action and
`errors` every way to fail.
"""
