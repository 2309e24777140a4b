"""The nodes that a cluster does not need, checked by placing their pods on the other nodes; nothing is written."""
