"""Commands that look at history and results: `scan`, `explain`, `forecast`, `findings` and their kin."""
