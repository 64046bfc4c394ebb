"""One conversation, to talk in."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from sage.v1 import conversation_service_pb2 as pb
from sage_client._async.chat import AsyncChat
from sage_client._async.transport import AsyncTransport
from sage_client._wire.agent_enums import on_busy_to
from sage_client._wire.progress import TurnProgress
from sage_client.models.conversations import Conversation, ConversationMemory, Summarized
from sage_client.models.items import AppendedItem, Item, ItemKind, ItemOrder, NewItem
from sage_client.models.turns import OnBusy
from sage_client.unset import UNSET, Unset

if TYPE_CHECKING:
    from sage.v1.agent_service_pb2_grpc import AgentServiceAsyncStub
    from sage.v1.conversation_service_pb2_grpc import ConversationServiceAsyncStub
    from sage_client._async.conversations import AsyncConversations


class AsyncConversationHandle:
    """`client.conversations.new(...)` or `.continue_(id)`: one thread. `id` finds it again."""

    def __init__(
        self,
        transport: AsyncTransport,
        stub: ConversationServiceAsyncStub,
        agents_stub: AgentServiceAsyncStub,
        conversations: AsyncConversations,
        conversation_id: str,
    ) -> None:
        self.id = conversation_id
        self._transport = transport
        self._stub = stub
        self._agents_stub = agents_stub
        self._conversations = conversations

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.id!r})"

    def respond(
        self,
        input: str,  # noqa: A002 -- as the contract names it
        *,
        author: str = "",
        on_busy: OnBusy = OnBusy.QUEUE,
        deltas: bool = False,
        store: bool = True,
        request_id: str | None = None,
    ) -> AsyncChat:
        """Send a message in the thread: iterate over what happens, or take `await chat.text()`.

        `@name` at its beginning chooses the agent. `author` is who says it, when a thread has several
        people. The rest is as for `client.agent().chat`.
        """
        request = pb.RespondRequest(
            conversation_id=self.id,
            input=input,
            author=author,
            request_id=request_id or str(uuid4()),
            on_busy=on_busy_to(on_busy),
            include_deltas=deltas,
            store=store,
        )
        begin = partial(self._transport.stream_once, self._stub.Respond, request)
        return AsyncChat(self._transport, self._agents_stub, TurnProgress(), deltas=deltas, begin=begin)

    async def append(
        self, items: Iterable[NewItem], *, request_id: str | None = None
    ) -> tuple[AppendedItem, ...]:
        """Store up to 500 items in this order, all or none, without calling a model."""
        return await self._conversations.append(self.id, items, request_id=request_id)

    def items(
        self,
        *,
        order: ItemOrder = ItemOrder.OLDEST_FIRST,
        kinds: Iterable[ItemKind] = (),
        show_hidden: bool = False,
        page_size: int = 0,
    ) -> AsyncIterator[Item]:
        """The history, fetched page by page while you iterate. No `kinds` means all of them."""
        return self._conversations.items(
            self.id, order=order, kinds=kinds, show_hidden=show_hidden, page_size=page_size
        )

    async def get(self) -> Conversation:
        """Read what it is called, how long it is and so on."""
        return await self._conversations.get(self.id)

    async def update(
        self,
        *,
        title: str | Unset = UNSET,
        metadata: Mapping[str, str] | Unset = UNSET,
        memory: ConversationMemory | Unset = UNSET,
        etag: str = "",
    ) -> Conversation:
        """Change what is given and nothing else; `metadata` replaces all pairs. Aborted if `etag` is old."""
        return await self._conversations.update(
            self.id, title=title, metadata=metadata, memory=memory, etag=etag
        )

    async def fork(
        self, *, up_to_seq: int = 0, title: str | None = None, request_id: str | None = None
    ) -> AsyncConversationHandle:
        """Copy the thread, or its items up to a `seq`, into a new one. Title: the original's."""
        copy = await self._conversations.fork(
            self.id, up_to_seq=up_to_seq, title=title, request_id=request_id
        )
        return self._conversations.continue_(copy.id)

    async def summarize(self, *, keep_newest: int | None = None, request_id: str | None = None) -> Summarized:
        """Summarise what no summary covers yet, but the newest items. `keep_newest` of None means 12."""
        return await self._conversations.summarize(self.id, keep_newest=keep_newest, request_id=request_id)

    async def delete(self, *, etag: str = "") -> Conversation:
        """Delete softly: `client.conversations.undelete` brings it back until retention removes it."""
        return await self._conversations.delete(self.id, etag=etag)
