"""The analysis of very many workloads in parts: shards of whole workloads, computed anywhere, merged in one order.

inventory -> plan (`plan`: which workloads are one shard) -> work (`work`: a shard from Parquet to rows of tables and
sums) -> merge (`merge`). Who calls `work` is an executor's business (`executors`: this process, processes of this
machine, the workers of a Dask scheduler); the results are the same bits.
"""
