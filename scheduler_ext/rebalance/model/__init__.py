"""Vocabulary of rebalancing: the tables in which people read a round."""
