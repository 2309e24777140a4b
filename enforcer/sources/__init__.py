"""What others say about this node: its pods, Node, policy and forecast, from the API server, kubelet, files or disk."""
