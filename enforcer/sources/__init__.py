"""The agent's inputs: the node's pods, Node, policy and forecast, from the API server, kubelet, files or disk."""
