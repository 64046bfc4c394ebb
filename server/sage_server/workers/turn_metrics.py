"""Turns, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge

from sage_server.workers.turns import TurnWorkers


class TurnMetrics:
    """What this process does with turns. A scrape asks the workers, which costs nothing."""

    def __init__(self, registry: CollectorRegistry, workers: TurnWorkers) -> None:
        for name, text, value in (
            ("sage_turns_running", "Turns that run in this process", lambda: workers.running),
            ("sage_turns_started", "Turns that this process began or took up", lambda: workers.started),
            ("sage_turns_left", "Turns that it could not bring to an end", lambda: workers.left),
        ):
            Gauge(name, text, registry=registry).set_function(value)
