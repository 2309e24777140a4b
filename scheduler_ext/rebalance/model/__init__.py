"""Data types of rebalancing that other packages use: tables, the move service, settings."""
