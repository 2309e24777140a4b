"""EDGE: the store: usage history, inventory, quality records and results of one cluster, below one fsspec URL.

    <url>/<cluster>/usage/<signal>/<YYYY-MM-DD>.parquet   one UTC day of one signal     (days.py)
    <url>/<cluster>/usage/<signal>/<YYYY-MM-DD>.part-<n>.parquet   what was appended to it  (dayfiles.py)
    <url>/<cluster>/inventory.json, quality.json          nodes, pods, workloads; scans (documents.py)
    <url>/<cluster>/results/current.json                  which run is published        (store.py)
    <url>/<cluster>/results/runs/<run>/<name>.parquet|.json   the results of a run      (tables.py, documents.py)
    <url>/<cluster>/results/<name>.parquet|.json          results outside of runs       (tables.py, documents.py)

Every file is written completely and renamed into place (files.py). A file that cannot be read is moved aside as
`<name>.corrupt-<n>` and counted as a hole; it is never overwritten and never hides other days.
"""

from cotenant.base.store.documents import FACTS, StoreFacts
from cotenant.base.store.store import Hole, Store

__all__ = ["FACTS", "Hole", "Store", "StoreFacts"]
