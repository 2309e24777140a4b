"""The analysis of very many workloads in parts: shards of whole workloads, computed anywhere, merged in a fixed order.

inventory -> plan (`plan`: which workloads form a shard) -> work (`work`: a shard from Parquet to rows of tables and
sums) -> merge (`merge`). An executor calls `work` (`executors`: this process, processes of this machine, the workers of
a Dask scheduler); the results are the same bits.
"""
