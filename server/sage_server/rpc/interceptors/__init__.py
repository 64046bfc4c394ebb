"""The stages that every call passes, in this order."""

ORDER = (
    "request_id",
    "tracing",
    "log",
    "metrics",
    "errors",
    "authentication",
    "limits",
    "message",
    "validation",
)
"""`tracing` is there only when it is configured. Who is not known, or over a limit, is refused by their
metadata: the server waits for no message of theirs and keeps none."""
