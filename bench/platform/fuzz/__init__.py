"""Fuzzed inputs: how documents are mutated, and who reads them."""
