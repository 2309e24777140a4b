"""The pipeline: history -> portraits -> forecasts -> reclaimable capacity and recommendations -> results.

`daily_analysis.analyse` runs it once over the stored history; `tables` and `overview` convert the results to the tables
and documents that the dashboard, REST and the command line show.
"""
