"""ConversationService, the usage: decode, one call, encode."""

from __future__ import annotations

from sage.v1 import conversation_service_pb2 as pb
from sage.v1 import usage_pb2
from sage_server.domain.identity import Caller
from sage_server.domain.usage import UsagePurpose, UsageRecord
from sage_server.rpc.mapping import from_timestamp
from sage_server.services.usage import Usage


class UsageServicer:
    """What models were used for."""

    def __init__(self, usage: Usage) -> None:
        self._usage = usage

    async def get_usage(self, request: pb.GetUsageRequest, caller: Caller) -> pb.GetUsageResponse:
        """The records of a period."""
        records = await self._usage.list(
            caller.user_id,
            start=from_timestamp(request, "start_time"),
            end=from_timestamp(request, "end_time"),
            purpose=UsagePurpose(request.purpose) if request.purpose else None,
        )
        return pb.GetUsageResponse(records=[_to_record(record) for record in records])


def _to_record(record: UsageRecord) -> usage_pb2.UsageRecord:
    key, counts = record.key, record.counts
    return usage_pb2.UsageRecord(
        day=key.day.isoformat(),
        model=key.model,
        purpose=usage_pb2.UsagePurpose.ValueType(key.purpose),
        calls=counts.calls,
        prompt_tokens=counts.prompt_tokens,
        completion_tokens=counts.completion_tokens,
        embedding_tokens=counts.embedding_tokens,
    )
