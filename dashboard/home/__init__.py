"""Home: what to do first, what the cluster's day is like, what was saved, and where everything else is."""
