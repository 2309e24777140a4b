"""Tables: the filter grammar, grids, pages that list, and how amounts are written."""
