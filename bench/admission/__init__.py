"""Benchmarks of webhooks and admission policies."""
