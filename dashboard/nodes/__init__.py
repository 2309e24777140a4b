"""Parts of pages about nodes and workloads: lendable capacity, pods, batch capacity, enforcement."""
