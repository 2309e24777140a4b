"""Tables: grids, list pages, selections, and how savings are written."""
