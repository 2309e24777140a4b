"""Scheduling: load-aware extender and Reservation controllers.

The room is empty so far; docs/house.md says what will be here.
"""
