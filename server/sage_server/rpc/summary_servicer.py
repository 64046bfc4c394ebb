"""The methods of ConversationService about summaries: decode, one call, encode."""

from __future__ import annotations

from uuid import UUID

from sage.v1 import conversation_service_pb2 as pb
from sage_server.domain.identity import Caller
from sage_server.domain.paging import page_size
from sage_server.rpc.conversation_mapping import to_summary
from sage_server.rpc.mapping import once
from sage_server.rpc.page_tokens import PageTokens, decode_seq, encode_seq
from sage_server.services.summaries import KEEP_NEWEST, Summaries


class SummaryServicer:
    """Summaries of threads."""

    def __init__(self, summaries: Summaries, pages: PageTokens) -> None:
        self._summaries = summaries
        self._pages = pages

    async def list_summaries(
        self, request: pb.ListSummariesRequest, caller: Caller
    ) -> pb.ListSummariesResponse:
        """A page of summaries."""
        page = await self._summaries.list(
            caller.user_id,
            UUID(request.conversation_id),
            page_size(request.page_size),
            await self._pages.read(caller.user_id, request, decode_seq),
        )
        return pb.ListSummariesResponse(
            summaries=[to_summary(row) for row in page.rows],
            next_page_token=await self._pages.write(caller.user_id, request, encode_seq(page.next)),
        )

    async def summarize_conversation(
        self, request: pb.SummarizeConversationRequest, caller: Caller
    ) -> pb.SummarizeConversationResponse:
        """Summaries of what has none."""
        keep = request.keep_newest if request.HasField("keep_newest") else KEEP_NEWEST
        done = await self._summaries.summarize(
            caller.user_id, UUID(request.conversation_id), keep, once(request)
        )
        summary = None if done.summary is None else to_summary(done.summary)
        return pb.SummarizeConversationResponse(summary=summary, applied=done.applied)
