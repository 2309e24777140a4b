"""The forecast of the next week for the largest series, and the decomposition of their past."""
