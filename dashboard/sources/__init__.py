"""Where pages get what they show: the store's snapshot, narrowed to what a person may read."""
