"""Vocabulary of colocation: configuration, node policy, metrics, lendable capacity, what agents did."""
