"""The shared foundation of all packages: types, algorithms and clients, no product feature. Read this package first.

Units are in names (`_millicores`, `_bytes`, `_seconds`) or follow from `Resource.unit`. The modules outside of folders,
`kubernetes`, `colocation`, `allocation`, `usage` and `inventory` are frozen dataclasses and pure algorithms: they read
no file, no clock and no network. `kube`, `store`, `ledger`, `http`, `logs` and `process` are the edges that do.

Order to read: `resource`, `identity`, `kubernetes.quantity`, `kubernetes.qos`, `usage.usage`, `cluster`,
`usage.portrait`, `usage.forecast`, `colocation.reclaimable`; `reasons` names every reason for an action that is not
taken and `errors` every kind of failure.
"""
