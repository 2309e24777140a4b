"""The week ahead of the largest series, and the parts of their past."""
