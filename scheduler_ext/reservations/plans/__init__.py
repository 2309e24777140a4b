"""Reservation plans: when, how much and how long capacity is reserved, whether at all, and how it went. Pure.

forecast -> `size` (pods per half hour) -> `proposals` (window, `backtest`, `guards`) -> plan, `schedule`, `lead` ->
`lifecycle` (what to reserve now) -> `realise` (objects); `preview` before, `score` after it
"""
