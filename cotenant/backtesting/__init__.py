"""Back-tests of decisions on recorded history: what a choice would have cost, compared with every baseline."""
