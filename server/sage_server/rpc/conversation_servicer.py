"""ConversationService: decode, one call, encode."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

from sage.v1 import conversation_service_pb2 as pb
from sage_server.domain.identity import Caller
from sage_server.domain.paging import page_size
from sage_server.rpc.conversation_mapping import (
    from_change,
    from_filter,
    from_memory,
    from_new_items,
    from_order,
    to_appended,
    to_conversation,
    to_item,
)
from sage_server.rpc.mapping import once
from sage_server.rpc.page_tokens import PageTokens, decode_seq, decode_time, encode_seq, encode_time
from sage_server.services.conversations import Conversations
from sage_server.services.transfer import ExportProgress, ExportWanted, Transfer


class ConversationServicer:
    """The methods that this server has; what is missing here answers UNIMPLEMENTED."""

    def __init__(self, conversations: Conversations, transfer: Transfer, pages: PageTokens) -> None:
        self._conversations = conversations
        self._transfer = transfer
        self._pages = pages

    async def create_conversation(
        self, request: pb.CreateConversationRequest, caller: Caller
    ) -> pb.CreateConversationResponse:
        """An empty conversation."""
        created = await self._conversations.create(
            caller.user_id,
            title=request.title,
            metadata=dict(request.metadata),
            private=request.private,
            memory=from_memory(request.memory),
            once=once(request),
        )
        return pb.CreateConversationResponse(conversation=to_conversation(created))

    async def get_conversation(
        self, request: pb.GetConversationRequest, caller: Caller
    ) -> pb.GetConversationResponse:
        """One conversation."""
        found = await self._conversations.get(caller.user_id, UUID(request.conversation_id))
        return pb.GetConversationResponse(conversation=to_conversation(found))

    async def list_conversations(
        self, request: pb.ListConversationsRequest, caller: Caller
    ) -> pb.ListConversationsResponse:
        """A page of conversations."""
        page = await self._conversations.list(
            caller.user_id,
            order=from_order(request.order),
            deleted=request.deleted_only,
            size=page_size(request.page_size),
            after=await self._pages.read(caller.user_id, request, decode_time),
        )
        return pb.ListConversationsResponse(
            conversations=[to_conversation(row) for row in page.rows],
            next_page_token=await self._pages.write(caller.user_id, request, encode_time(page.next)),
        )

    async def update_conversation(
        self, request: pb.UpdateConversationRequest, caller: Caller
    ) -> pb.UpdateConversationResponse:
        """The fields that the mask names."""
        changed = await self._conversations.update(
            caller.user_id, UUID(request.conversation_id), from_change(request), request.etag
        )
        return pb.UpdateConversationResponse(conversation=to_conversation(changed))

    async def delete_conversation(
        self, request: pb.DeleteConversationRequest, caller: Caller
    ) -> pb.DeleteConversationResponse:
        """Softly."""
        deleted = await self._conversations.delete(
            caller.user_id, UUID(request.conversation_id), request.etag
        )
        return pb.DeleteConversationResponse(conversation=to_conversation(deleted))

    async def undelete_conversation(
        self, request: pb.UndeleteConversationRequest, caller: Caller
    ) -> pb.UndeleteConversationResponse:
        """Back again."""
        restored = await self._conversations.undelete(caller.user_id, UUID(request.conversation_id))
        return pb.UndeleteConversationResponse(conversation=to_conversation(restored))

    async def batch_delete_conversations(
        self, request: pb.BatchDeleteConversationsRequest, caller: Caller
    ) -> pb.BatchDeleteConversationsResponse:
        """Several, softly."""
        deleted, missing = await self._conversations.delete_many(
            caller.user_id, [UUID(wanted) for wanted in request.conversation_ids]
        )
        return pb.BatchDeleteConversationsResponse(
            deleted_count=deleted, not_found=[str(missed) for missed in missing]
        )

    async def delete_all_conversations(
        self, _request: pb.DeleteAllConversationsRequest, caller: Caller
    ) -> pb.DeleteAllConversationsResponse:
        """All, softly."""
        deleted = await self._conversations.delete_all(caller.user_id)
        return pb.DeleteAllConversationsResponse(deleted_count=deleted)

    async def fork_conversation(
        self, request: pb.ForkConversationRequest, caller: Caller
    ) -> pb.ForkConversationResponse:
        """A copy."""
        copy = await self._conversations.fork(
            caller.user_id,
            UUID(request.conversation_id),
            up_to_seq=request.up_to_seq or None,
            title=request.title if request.HasField("title") else None,
            once=once(request),
        )
        return pb.ForkConversationResponse(conversation=to_conversation(copy))

    async def list_items(self, request: pb.ListItemsRequest, caller: Caller) -> pb.ListItemsResponse:
        """A page of items."""
        page = await self._conversations.list_items(
            caller.user_id,
            UUID(request.conversation_id),
            from_filter(request),
            page_size(request.page_size),
            await self._pages.read(caller.user_id, request, decode_seq),
        )
        return pb.ListItemsResponse(
            items=[to_item(row) for row in page.rows],
            next_page_token=await self._pages.write(caller.user_id, request, encode_seq(page.next)),
        )

    async def append_items(self, request: pb.AppendItemsRequest, caller: Caller) -> pb.AppendItemsResponse:
        """Items at the end."""
        appended = await self._conversations.append(
            caller.user_id, UUID(request.conversation_id), from_new_items(request), once(request)
        )
        return pb.AppendItemsResponse(items=[to_appended(item) for item in appended])

    async def delete_item(self, request: pb.DeleteItemRequest, caller: Caller) -> pb.DeleteItemResponse:
        """One item, for good."""
        await self._conversations.delete_item(
            caller.user_id, UUID(request.conversation_id), UUID(request.item_id)
        )
        return pb.DeleteItemResponse()

    async def export_conversations(
        self, request: pb.ExportConversationsRequest, caller: Caller
    ) -> AsyncIterator[pb.ExportConversationsResponse]:
        """JSON Lines and progress."""
        last = ExportProgress(0, 0, 0)
        wanted = ExportWanted(
            ids=[UUID(known) for known in dict.fromkeys(request.conversation_ids)],
            show_deleted=request.show_deleted,
            include_agents=request.include_agents,
        )
        async for event in self._transfer.export(caller.user_id, wanted):
            if isinstance(event, bytes):
                yield pb.ExportConversationsResponse(chunk=pb.ExportChunk(jsonl=event))
                continue
            last = event
            yield pb.ExportConversationsResponse(
                progress=pb.ExportProgress(
                    conversations=event.conversations,
                    items=event.items,
                    total_conversations=event.total_conversations,
                )
            )
        done = pb.ExportDone(conversations=last.conversations, items=last.items)
        yield pb.ExportConversationsResponse(done=done)

    async def import_conversations(
        self, request: pb.ImportConversationsRequest, caller: Caller
    ) -> AsyncIterator[pb.ImportConversationsResponse]:
        """Progress, then what was done."""
        async for last in self._transfer.import_(caller.user_id, request.jsonl):
            progress = pb.ImportProgress(lines=last.lines, total_lines=last.total_lines)
            yield pb.ImportConversationsResponse(progress=progress)
        yield pb.ImportConversationsResponse(
            done=pb.ImportDone(
                conversations_created=last.conversations_created,
                conversations_skipped=last.conversations_skipped,
                items_created=last.items_created,
                items_skipped=last.items_skipped,
            )
        )
