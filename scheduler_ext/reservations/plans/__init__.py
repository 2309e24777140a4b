"""Capacity reserved before it is needed: when, how much, how long, whether at all, and what came of it. Pure.

forecast -> `size` (pods per half hour) -> `proposals` (window, `backtest`, `guards`) -> plan
plan, `schedule`, `lead` -> `lifecycle` (what to hold now) -> `realise` (objects)
`preview` before, `score` afterwards
"""
