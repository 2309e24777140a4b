"""Commands that read the history and the results: `scan`, `explain`, `forecast`, `findings` and others."""
