"""What pages about nodes and workloads show: lendable capacity, pods, batch capacity, enforcement."""
