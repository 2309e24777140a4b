"""The rules of Kubernetes and Koordinator for requests, QoS classes, quantities, selectors and writes. Pure."""
