"""The types of colocation: bands of reclaimable capacity, their policies and strategies, NodeMetric objects."""
