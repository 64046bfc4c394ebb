# Generated from client/sage_client/_async/conversations.py by scripts/sync_client.py: do not edit.
"""Threads and their history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from sage.v1 import conversation_service_pb2 as pb
from sage_client._sync.conversation_handle import ConversationHandle
from sage_client._sync.paging import every
from sage_client._sync.transfer import Transfer
from sage_client._sync.transport import Transport
from sage_client._wire.conversations import (
    appended_from,
    conversation_from,
    item_from,
    new_item_to,
    summarized_from,
    summary_from,
    update_to,
)
from sage_client._wire.enums import conversation_order_to, item_order_to, kind_to, memory_to
from sage_client.models.conversations import (
    BatchDeleted,
    Conversation,
    ConversationMemory,
    ConversationOrder,
    ConversationSummary,
    Summarized,
)
from sage_client.models.items import AppendedItem, Item, ItemKind, ItemOrder, NewItem
from sage_client.models.page import Page
from sage_client.retry import Repeat
from sage_client.unset import UNSET, Unset

if TYPE_CHECKING:
    from sage.v1.agent_service_pb2_grpc import AgentServiceStub
    from sage.v1.conversation_service_pb2_grpc import ConversationServiceStub


class Conversations(Transfer):
    """`client.conversations`: the user's threads. `new` and `continue_` give one to talk in.

    What creates something sends a request id, the same on every attempt, so that a retry never creates it
    twice. Give your own `request_id` (a UUID) to be as safe across restarts of your program.
    """

    def __init__(
        self,
        transport: Transport,
        stub: ConversationServiceStub,
        agents_stub: AgentServiceStub,
    ) -> None:
        super().__init__(transport, stub)
        self._agents_stub = agents_stub

    def new(
        self,
        title: str = "",
        *,
        metadata: Mapping[str, str] | None = None,
        private: bool = False,
        memory: ConversationMemory = ConversationMemory.AGENT,
        request_id: str | None = None,
    ) -> ConversationHandle:
        """Create a conversation, as `create` does, to talk in: `thread.respond("Hello").text()`."""
        created = self.create(title, metadata=metadata, private=private, memory=memory, request_id=request_id)
        return self.continue_(created.id)

    def continue_(self, conversation_id: str) -> ConversationHandle:
        """A conversation that is there already, to talk in. Asks the server nothing."""
        return ConversationHandle(self._transport, self._stub, self._agents_stub, self, conversation_id)

    def create(
        self,
        title: str = "",
        *,
        metadata: Mapping[str, str] | None = None,
        private: bool = False,
        memory: ConversationMemory = ConversationMemory.AGENT,
        request_id: str | None = None,
    ) -> Conversation:
        """Create an empty conversation. A private one stays out of recall for good."""
        request = pb.CreateConversationRequest(
            title=title,
            metadata=metadata,
            private=private,
            memory=memory_to(memory),
            request_id=request_id or str(uuid4()),
        )
        stub = self._stub.CreateConversation
        response = self._transport.unary(stub, request, repeat=Repeat.SAFE)
        return conversation_from(response.conversation)

    def get(self, conversation_id: str) -> Conversation:
        """Read one conversation, a deleted one too."""
        request = pb.GetConversationRequest(conversation_id=conversation_id)
        response = self._transport.unary(self._stub.GetConversation, request, repeat=Repeat.SAFE)
        return conversation_from(response.conversation)

    def list(
        self,
        *,
        order: ConversationOrder = ConversationOrder.CREATED,
        deleted_only: bool = False,
        page_size: int = 0,
    ) -> Iterator[Conversation]:
        """All conversations, fetched page by page while you iterate."""
        return every(partial(self.list_page, order=order, deleted_only=deleted_only, page_size=page_size))

    def list_page(
        self,
        *,
        page_token: str = "",
        order: ConversationOrder = ConversationOrder.CREATED,
        deleted_only: bool = False,
        page_size: int = 0,
    ) -> Page[Conversation]:
        """One page. A token works only with the order, filter and user that it came from."""
        request = pb.ListConversationsRequest(
            page_size=page_size,
            page_token=page_token,
            order=conversation_order_to(order),
            deleted_only=deleted_only,
        )
        response = self._transport.unary(self._stub.ListConversations, request, repeat=Repeat.SAFE)
        found = tuple(conversation_from(message) for message in response.conversations)
        return Page(found, response.next_page_token)

    def update(
        self,
        conversation_id: str,
        *,
        title: str | Unset = UNSET,
        metadata: Mapping[str, str] | Unset = UNSET,
        memory: ConversationMemory | Unset = UNSET,
        etag: str = "",
    ) -> Conversation:
        """Change what is given and nothing else; `metadata` replaces all pairs. Aborted if `etag` is old."""
        request = update_to(conversation_id, title=title, metadata=metadata, memory=memory, etag=etag)
        # Writing the same values again is safe, but a repeat with an etag would find it changed by itself.
        repeat = Repeat.IF_REFUSED if etag else Repeat.SAFE
        response = self._transport.unary(self._stub.UpdateConversation, request, repeat=repeat)
        return conversation_from(response.conversation)

    def delete(self, conversation_id: str, *, etag: str = "") -> Conversation:
        """Delete softly: `undelete` brings it back until retention removes it for good."""
        request = pb.DeleteConversationRequest(conversation_id=conversation_id, etag=etag)
        # A repeat of a delete that was carried out is NOT_FOUND, which would hide that it worked.
        stub = self._stub.DeleteConversation
        response = self._transport.unary(stub, request, repeat=Repeat.IF_REFUSED)
        return conversation_from(response.conversation)

    def undelete(self, conversation_id: str) -> Conversation:
        """Bring a deleted conversation back. FailedPrecondition if it is not deleted."""
        request = pb.UndeleteConversationRequest(conversation_id=conversation_id)
        # As with delete: a repeat would fail although the first was carried out.
        stub = self._stub.UndeleteConversation
        response = self._transport.unary(stub, request, repeat=Repeat.IF_REFUSED)
        return conversation_from(response.conversation)

    def batch_delete(self, ids: Iterable[str]) -> BatchDeleted:
        """Delete up to 200 conversations softly, all in one transaction.

        After a lost connection it is tried again, and what the first attempt deleted is then `not_found`.
        """
        request = pb.BatchDeleteConversationsRequest(conversation_ids=ids)
        stub = self._stub.BatchDeleteConversations
        response = self._transport.unary(stub, request, repeat=Repeat.SAFE)
        return BatchDeleted(response.deleted_count, tuple(response.not_found))

    def delete_all(self) -> int:
        """Delete all of the user's conversations softly. How many the attempt that was answered deleted."""
        request = pb.DeleteAllConversationsRequest()
        stub = self._stub.DeleteAllConversations
        response = self._transport.unary(stub, request, repeat=Repeat.SAFE)
        return response.deleted_count

    def fork(
        self,
        conversation_id: str,
        *,
        up_to_seq: int = 0,
        title: str | None = None,
        request_id: str | None = None,
    ) -> Conversation:
        """Copy a conversation, or its items up to a `seq`, into a new one. Title: the original's."""
        request = pb.ForkConversationRequest(
            conversation_id=conversation_id,
            up_to_seq=up_to_seq,
            title=title,
            request_id=request_id or str(uuid4()),
        )
        response = self._transport.unary(self._stub.ForkConversation, request, repeat=Repeat.SAFE)
        return conversation_from(response.conversation)

    def items(
        self,
        conversation_id: str,
        *,
        order: ItemOrder = ItemOrder.OLDEST_FIRST,
        kinds: Iterable[ItemKind] = (),
        show_hidden: bool = False,
        page_size: int = 0,
    ) -> Iterator[Item]:
        """The history, fetched page by page while you iterate. No `kinds` means all of them."""
        fetch = partial(
            self.items_page,
            conversation_id,
            order=order,
            kinds=tuple(kinds),
            show_hidden=show_hidden,
            page_size=page_size,
        )
        return every(fetch)

    def items_page(
        self,
        conversation_id: str,
        *,
        page_token: str = "",
        order: ItemOrder = ItemOrder.OLDEST_FIRST,
        kinds: Iterable[ItemKind] = (),
        show_hidden: bool = False,
        page_size: int = 0,
    ) -> Page[Item]:
        """One page of the history."""
        request = pb.ListItemsRequest(
            conversation_id=conversation_id,
            page_size=page_size,
            page_token=page_token,
            order=item_order_to(order),
            kinds=[kind_to(kind) for kind in kinds],
            show_hidden=show_hidden,
        )
        response = self._transport.unary(self._stub.ListItems, request, repeat=Repeat.SAFE)
        return Page(tuple(item_from(message) for message in response.items), response.next_page_token)

    def append(
        self, conversation_id: str, items: Iterable[NewItem], *, request_id: str | None = None
    ) -> tuple[AppendedItem, ...]:
        """Store up to 500 items in this order, all or none, without calling a model."""
        request = pb.AppendItemsRequest(
            conversation_id=conversation_id,
            items=[new_item_to(item) for item in items],
            request_id=request_id or str(uuid4()),
        )
        response = self._transport.unary(self._stub.AppendItems, request, repeat=Repeat.SAFE)
        return tuple(appended_from(message) for message in response.items)

    def delete_item(self, conversation_id: str, item_id: str) -> None:
        """Delete one item for good."""
        request = pb.DeleteItemRequest(conversation_id=conversation_id, item_id=item_id)
        # As with delete: a repeat would be NOT_FOUND.
        self._transport.unary(self._stub.DeleteItem, request, repeat=Repeat.IF_REFUSED)

    def summaries(self, conversation_id: str, *, page_size: int = 0) -> Iterator[ConversationSummary]:
        """The summaries of a conversation, the newest first, fetched while you iterate."""
        return every(partial(self.summaries_page, conversation_id, page_size=page_size))

    def summaries_page(
        self, conversation_id: str, *, page_token: str = "", page_size: int = 0
    ) -> Page[ConversationSummary]:
        """One page of summaries."""
        request = pb.ListSummariesRequest(
            conversation_id=conversation_id, page_size=page_size, page_token=page_token
        )
        response = self._transport.unary(self._stub.ListSummaries, request, repeat=Repeat.SAFE)
        return Page(tuple(summary_from(message) for message in response.summaries), response.next_page_token)

    def summarize(
        self, conversation_id: str, *, keep_newest: int | None = None, request_id: str | None = None
    ) -> Summarized:
        """Summarise what no summary covers yet, but the newest items. `keep_newest` of None means 12."""
        request = pb.SummarizeConversationRequest(
            conversation_id=conversation_id, keep_newest=keep_newest, request_id=request_id or str(uuid4())
        )
        stub = self._stub.SummarizeConversation
        response = self._transport.unary(stub, request, repeat=Repeat.SAFE)
        return summarized_from(response)
