"""`cotenant explain`: shows the computation of a recommendation or of a node's amounts."""
