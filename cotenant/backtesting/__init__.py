"""Back-tests of decisions over recorded history: what a choice would have cost, against every baseline."""
