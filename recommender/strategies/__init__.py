"""The built-in strategies, one file each; every one computes recommendations from evidence and settings."""
