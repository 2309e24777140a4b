"""Vocabulary of colocation: configuration, node policy, metrics, lendable capacity, actions of node agents."""
