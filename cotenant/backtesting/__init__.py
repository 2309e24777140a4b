"""Back-tests on recorded history: what each forecast model or reclaim policy would have done, beside baselines."""
