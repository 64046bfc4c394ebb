"""The stages that every call passes, in this order."""

ORDER = (
    "request_id",
    "tracing",
    "log",
    "metrics",
    "errors",
    "message",
    "authentication",
    "limits",
    "validation",
)
"""`tracing` is there only when it is configured."""
