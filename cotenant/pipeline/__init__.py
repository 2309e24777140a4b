"""The pipeline: history -> portraits -> forecasts -> reclaimable, recommendations -> results.

`daily_analysis.analyse` runs it once over the stored history; `tables` and `overview` convert the result for the
surfaces.
"""
