"""Vocabulary of usage: series, portraits, forecasts and their quality."""
