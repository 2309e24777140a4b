"""Portraits and forecasts of very many containers, in shards, with bounded memory, on many workers.

store -> plan (`plan`: which series are one shard, named by a digest of input and settings) -> work (`work`: one shard
from Parquet to a block of results and a block of state) -> join. Who calls `work` is an executor's business
(`executors`: processes of this machine, Dask, or one share of a Kubernetes Indexed Job); the blocks are the same.
A later hour goes on from the state (`hour`). `run` leads through it.
"""
