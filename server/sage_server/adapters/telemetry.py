"""Logs and traces."""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import sys
import threading
import time
import traceback
from collections import deque
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

_FLUSH_SECONDS = 0.2
_LINES_HELD = 100_000
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


def configure_logging(level: str, form: str) -> None:
    """Log to standard error, as JSON for machines or as text for people."""
    handler = _LineHandler()
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("sage").setLevel(level.upper())
    logging.getLogger("grpc._cython.cygrpc").addFilter(_quotes_no_header)


def _quotes_no_header(record: logging.LogRecord) -> bool:
    """gRPC complains of a header that is no text by quoting it, and the header may be a token."""
    return not str(record.msg).startswith("Invalid encoding")


class LineWriter:
    """Lines to standard error a few times a second: a write a call would cost as much as the call's own work.

    What a killed process had not written is lost.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=_LINES_HELD)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def write(self, line: str) -> None:
        """Write the line soon, after those that came before it."""
        self._lines.append(line)
        if self._thread is None:
            self._thread = threading.Thread(target=self._flush_for_ever, name="log", daemon=True)
            self._thread.start()
            atexit.register(self.flush)

    def flush(self) -> None:
        """Write what has gathered. A stream that is closed or full must not stop the server: the lines are
        lost."""
        with self._lock, contextlib.suppress(OSError, ValueError):
            lines = [self._lines.popleft() for _ in range(len(self._lines))]
            if lines:
                sys.stderr.write("\n".join(lines) + "\n")
                sys.stderr.flush()

    def _flush_for_ever(self) -> None:
        while True:
            time.sleep(_FLUSH_SECONDS)
            self.flush()


LINES = LineWriter()
"""The process's standard error: one, like the stream itself."""


class _LineHandler(logging.Handler):
    """Log records at once, in order with the lines of calls."""

    def emit(self, record: logging.LogRecord) -> None:
        LINES.write(self.format(record))
        LINES.flush()


class JsonFormatter(logging.Formatter):
    """One JSON object a line. An exception is its type and its frames, without its message: messages
    quote values, and values are what people wrote."""

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= _extra(record)
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = _trace(record.exc_info[1])
        return json.dumps(line, default=str)


class TextFormatter(logging.Formatter):
    """The same for people."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, and a trace below it."""
        time = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%SZ")
        fields = " ".join(f"{key}={value}" for key, value in _extra(record).items() if value is not None)
        line = f"{time} {record.levelname.lower():7} {record.getMessage()} {fields}".rstrip()
        if record.exc_info and record.exc_info[1] is not None:
            line += "".join(f"\n    {frame}" for frame in _trace(record.exc_info[1]))
        return line


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _OWN}


def _trace(error: BaseException) -> list[str]:
    """Types and places, from the cause to what was raised."""
    lines = []
    chain: BaseException | None = error
    while chain is not None:
        frames = traceback.extract_tb(chain.__traceback__)
        state = getattr(chain, "sqlstate", None)
        lines.append(
            f"{type(chain).__module__}.{type(chain).__name__}" + (f" sqlstate={state}" if state else "")
        )
        lines += [f"  {frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
        chain = chain.__cause__ or chain.__context__
    return lines


def open_tracer(endpoint: str, version: str) -> Tracer:
    """A tracer that sends spans to a collector. Raises ImportError without the extra `otel`."""
    from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
    from opentelemetry.sdk.resources import Resource  # noqa: PLC0415
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    provider = TracerProvider(resource=Resource({"service.name": "sage", "service.version": version}))
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
    return provider.get_tracer("sage", version)
