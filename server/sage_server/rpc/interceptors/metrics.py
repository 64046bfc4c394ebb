"""Counts and times of calls, for Prometheus."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from sage_server.rpc.call import Call, Interceptor

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60)


class Metrics(Interceptor):
    """Three series: calls by method and code, seconds by method, calls that run now."""

    name = "metrics"

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter("sage_rpc_calls", "Calls that ended", ["method", "code"], registry=registry)
        self._seconds = Histogram(
            "sage_rpc_seconds", "Time that calls took", ["method"], registry=registry, buckets=_BUCKETS
        )
        self._running = Gauge("sage_rpc_running", "Calls that run now", registry=registry)
        # The library's own look-up of a labelled child costs more than the update.
        self._counters: dict[tuple[str, str], Counter] = {}
        self._histograms: dict[str, Histogram] = {}

    async def enter(self, call: Call) -> None:  # noqa: ARG002
        """One more runs."""
        self._running.inc()

    def leave(self, call: Call) -> None:
        """It ended."""
        self._running.dec()
        method, code = call.method.full_name, call.code.name
        counter = self._counters.get((method, code))
        if counter is None:
            counter = self._counters[method, code] = self._calls.labels(method, code)
        counter.inc()
        histogram = self._histograms.get(method)
        if histogram is None:
            histogram = self._histograms[method] = self._seconds.labels(method)
        histogram.observe(time.perf_counter() - call.started)
