"""The corridor: history -> portraits -> forecasts -> reclaimable, recommendations -> results. It alone joins the rooms.

`corridor.analyse` walks it once over what the store holds; `tables` and `overview` turn the outcome into what surfaces
show.
"""
