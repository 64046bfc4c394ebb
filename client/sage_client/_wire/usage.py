"""What models were used for."""

from __future__ import annotations

from datetime import date

from sage.v1 import usage_pb2
from sage_client._wire.enums import known
from sage_client.models.usage import UsagePurpose, UsageRecord

_PURPOSE = {
    UsagePurpose.STEP: usage_pb2.USAGE_PURPOSE_STEP,
    UsagePurpose.CORRECTION: usage_pb2.USAGE_PURPOSE_CORRECTION,
    UsagePurpose.SUMMARY: usage_pb2.USAGE_PURPOSE_SUMMARY,
    UsagePurpose.ROUTING: usage_pb2.USAGE_PURPOSE_ROUTING,
    UsagePurpose.EMBEDDING: usage_pb2.USAGE_PURPOSE_EMBEDDING,
}
_PURPOSE_FROM = {number: purpose for purpose, number in _PURPOSE.items()}


def purpose_to(purpose: UsagePurpose | None) -> usage_pb2.UsagePurpose.ValueType:
    """The number of a purpose; that of all for None."""
    return usage_pb2.USAGE_PURPOSE_UNSPECIFIED if purpose is None else _PURPOSE[known(purpose)]


def usage_from(message: usage_pb2.UsageRecord) -> UsageRecord:
    """What one model was used for on one day."""
    return UsageRecord(
        day=date.fromisoformat(message.day),
        model=message.model,
        purpose=_PURPOSE_FROM.get(message.purpose, UsagePurpose.UNKNOWN),
        calls=message.calls,
        prompt_tokens=message.prompt_tokens,
        completion_tokens=message.completion_tokens,
        embedding_tokens=message.embedding_tokens,
    )
