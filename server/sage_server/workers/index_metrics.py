"""Search indexes, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from sage_server.engine.memory_index.cache import IndexCache


class IndexMetrics:
    """What this process's cache of indexes holds. A scrape asks the cache, which costs nothing."""

    def __init__(self, registry: CollectorRegistry, indexes: IndexCache) -> None:
        for name, text, value in (
            ("sage_indexes", "Users' search indexes in memory", lambda: indexes.size.indexes),
            ("sage_index_bytes", "Memory that they take, about", lambda: indexes.size.bytes),
            ("sage_index_loads", "Indexes that were loaded", lambda: indexes.size.loads),
            ("sage_index_evictions", "Indexes that had to make room", lambda: indexes.size.evictions),
        ):
            Gauge(name, text, registry=registry).set_function(value)
