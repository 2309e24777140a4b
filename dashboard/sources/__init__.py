"""Sources of the pages' data: the store's snapshot, limited to what a person may read."""
