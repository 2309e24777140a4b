"""Gradient boosting of the mixture's residuals, trained over all series of a shard, as trees in plain arrays. Pure."""
