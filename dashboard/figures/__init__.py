"""Charts as pure functions from numbers of the results to a plotly figure (a plain mapping) and its summary in words.

Text, background and grid colours are set in `assets/cotenant.css`, so that one figure serves the light and dark theme.
"""
