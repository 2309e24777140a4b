"""Rules of Kubernetes and Koordinator: requests, QoS classes, quantities, selectors, writes. Pure; each rule once."""
