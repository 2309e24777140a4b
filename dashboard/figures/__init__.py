"""Charts as pure functions: numbers of the overview document in, a plotly figure (plain mapping) and its summary out.

Ink, paper and grid lines are left to `assets/cotenant.css`, so that one figure serves the light and the dark theme.
"""
