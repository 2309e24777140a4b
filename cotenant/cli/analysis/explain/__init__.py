"""`cotenant explain`: why a recommendation says what it says, and where a node's numbers come from."""
