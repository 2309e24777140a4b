"""The analysis of very many workloads in parts: shards of whole workloads, computed anywhere, merged in a fixed order.

`plan` assigns the workloads of the inventory to shards, `work` computes a shard (from Parquet to rows of tables and
sums), and `merge` joins the results. An executor calls `work` (`executors`: this process, processes of this machine,
the workers of a Dask scheduler); the results are the same bits.
"""
