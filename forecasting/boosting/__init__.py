"""Gradient boosting: what the mixture left over, learned over all series of a shard, as trees in plain arrays. Pure."""
