"""What a user's agents know."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from sage.v1 import memory_service_pb2 as pb
from sage_client._async.blocks import AsyncBlocks
from sage_client._async.documents import AsyncDocuments
from sage_client._async.paging import every
from sage_client._async.scratchpads import AsyncScratchpads
from sage_client._async.transport import AsyncTransport
from sage_client._wire.enums import purpose_to
from sage_client._wire.memory import (
    embeddings_from,
    filter_to,
    memory_from,
    memory_update_to,
    new_memory_to,
    stats_from,
)
from sage_client._wire.search import search_from, search_to
from sage_client._wire.values import texts_to
from sage_client.models.memory import (
    DeletedMemories,
    Embeddings,
    EmbedPurpose,
    InsertedMemories,
    Memory,
    MemoryFilter,
    MemorySource,
    MemoryStats,
    MemoryTrust,
    NewMemory,
    TagMatch,
    Vector,
    WrittenMemory,
)
from sage_client.models.page import Page
from sage_client.models.search import SearchQuery, SearchResults
from sage_client.retry import Repeat
from sage_client.unset import UNSET, Unset

if TYPE_CHECKING:
    from sage.v1.memory_service_pb2_grpc import MemoryServiceAsyncStub


class AsyncMemories:
    """`client.memory`: archival memories, and search over them, messages, documents and summaries.

    - `blocks`: core memory, always in the agents' context.
    - `documents`: files that are taken into memory.
    - `scratchpads`: short notes of a thread.

    What writes memories gives a `memory_token`: a search `at_least_as_fresh` sees it, on any replica. What
    creates something sends a request id, the same on every attempt. An agent goes by name or id.
    """

    def __init__(self, transport: AsyncTransport, stub: MemoryServiceAsyncStub) -> None:
        self._transport = transport
        self._stub = stub
        self.blocks = AsyncBlocks(transport, stub)
        self.documents = AsyncDocuments(transport, stub)
        self.scratchpads = AsyncScratchpads(transport, stub)

    async def search(
        self,
        query: str = "",
        *,
        embedding: Vector | None = None,
        sources: Collection[MemorySource] = (),
        tags: Collection[str] = (),
        match: TagMatch = TagMatch.ANY,
        conversation_id: str = "",
        agent: str = "",
        document_id: str = "",
        after: datetime | None = None,
        before: datetime | None = None,
        top_k: int = 10,
        vector_weight: float | None = None,
        text_weight: float | None = None,
        min_score: float | None = None,
        context_evidence: bool | None = None,
        at_least_as_fresh: str = "",
        fully_consistent: bool = False,
    ) -> SearchResults:
        """Search by meaning and by words, the best first. SearchQuery says what each argument means."""
        wanted = SearchQuery(
            query=query,
            embedding=embedding,
            sources=sources,
            tags=tags,
            match=match,
            conversation_id=conversation_id,
            agent=agent,
            document_id=document_id,
            after=after,
            before=before,
            top_k=top_k,
            vector_weight=vector_weight,
            text_weight=text_weight,
            min_score=min_score,
            context_evidence=context_evidence,
            at_least_as_fresh=at_least_as_fresh,
            fully_consistent=fully_consistent,
        )
        stub = self._stub.SearchMemories
        response = await self._transport.unary(stub, search_to(wanted), repeat=Repeat.SAFE)
        return search_from(response)

    async def search_many(self, queries: Iterable[SearchQuery]) -> tuple[SearchResults, ...]:
        """Up to 32 searches in one call, on one state of the index. The answers are in their order."""
        request = pb.BatchSearchMemoriesRequest(requests=[search_to(query) for query in queries])
        response = await self._transport.unary(self._stub.BatchSearchMemories, request, repeat=Repeat.SAFE)
        return tuple(search_from(message) for message in response.responses)

    async def insert(
        self,
        text: str,
        *,
        tags: Collection[str] = (),
        metadata: Mapping[str, str] | None = None,
        agent: str = "",
        create_time: datetime | None = None,
        trust: MemoryTrust | None = None,
        embedding: Vector | None = None,
        embedding_model: str = "",
        request_id: str | None = None,
    ) -> WrittenMemory:
        """Keep a text for good. NewMemory says what each argument means."""
        memory = NewMemory(
            text=text,
            tags=tags,
            metadata=metadata,
            agent=agent,
            create_time=create_time,
            trust=trust,
            embedding=embedding,
            embedding_model=embedding_model,
        )
        request = new_memory_to(memory, request_id=request_id or str(uuid4()))
        response = await self._transport.unary(self._stub.InsertMemory, request, repeat=Repeat.SAFE)
        return WrittenMemory(memory_from(response.memory), response.memory_token)

    async def insert_many(
        self, memories: Iterable[NewMemory], *, request_id: str | None = None
    ) -> InsertedMemories:
        """Keep up to 1,000 texts, all or none."""
        request = pb.BatchInsertMemoriesRequest(
            requests=[new_memory_to(memory) for memory in memories], request_id=request_id or str(uuid4())
        )
        response = await self._transport.unary(self._stub.BatchInsertMemories, request, repeat=Repeat.SAFE)
        return InsertedMemories(tuple(response.memory_ids), response.memory_token)

    async def get(self, memory_id: str) -> Memory:
        """Read one memory of any source."""
        request = pb.GetMemoryRequest(memory_id=memory_id)
        response = await self._transport.unary(self._stub.GetMemory, request, repeat=Repeat.SAFE)
        return memory_from(response.memory)

    def list(self, where: MemoryFilter | None = None, *, page_size: int = 0) -> AsyncIterator[Memory]:
        """All memories, or those that a filter names, the newest first, fetched while you iterate."""
        return every(partial(self.list_page, where, page_size=page_size))

    async def list_page(
        self, where: MemoryFilter | None = None, *, page_token: str = "", page_size: int = 0
    ) -> Page[Memory]:
        """One page. A token works only with the filter and user that it came from."""
        request = pb.ListMemoriesRequest(
            page_size=page_size,
            page_token=page_token,
            filter=None if where is None else filter_to(where),
        )
        response = await self._transport.unary(self._stub.ListMemories, request, repeat=Repeat.SAFE)
        return Page(tuple(memory_from(message) for message in response.memories), response.next_page_token)

    async def update(
        self,
        memory_id: str,
        *,
        text: str | Unset = UNSET,
        tags: Collection[str] | Unset = UNSET,
        metadata: Mapping[str, str] | Unset = UNSET,
        trust: MemoryTrust | Unset = UNSET,
        embedding: Vector | None = None,
        embedding_model: str = "",
        etag: str = "",
    ) -> WrittenMemory:
        """Change what is given of an archival memory, and nothing else. Aborted if `etag` is old.

        `tags` and `metadata` replace all of the old. `embedding` is the vector of a new `text`.
        """
        request = memory_update_to(
            memory_id,
            text=text,
            tags=tags,
            metadata=metadata,
            trust=trust,
            embedding=embedding,
            embedding_model=embedding_model,
            etag=etag,
        )
        # Writing the same values again is safe, but a repeat with an etag would find it changed by itself.
        repeat = Repeat.IF_REFUSED if etag else Repeat.SAFE
        response = await self._transport.unary(self._stub.UpdateMemory, request, repeat=repeat)
        return WrittenMemory(memory_from(response.memory), response.memory_token)

    async def delete(self, memory_id: str, *, etag: str = "") -> DeletedMemories:
        """Delete one memory of any source, for good. What it comes from stays, and is found no more."""
        request = pb.DeleteMemoryRequest(memory_id=memory_id, etag=etag)
        # A repeat of a delete that was carried out is NOT_FOUND, which would hide that it worked.
        stub = self._stub.DeleteMemory
        response = await self._transport.unary(stub, request, repeat=Repeat.IF_REFUSED)
        return DeletedMemories(response.deleted_count, (), response.memory_token)

    async def delete_many(self, ids: Iterable[str]) -> DeletedMemories:
        """Delete up to 1,000 memories for good, all in one transaction.

        After a lost connection it is tried again, and what the first attempt deleted is then `not_found`.
        """
        return await self._delete(pb.DeleteMemoriesRequest(ids=pb.MemoryIds(ids=texts_to(ids))))

    async def delete_where(self, where: MemoryFilter) -> DeletedMemories:
        """Delete what a filter names, for good. A filter without a condition is refused."""
        return await self._delete(pb.DeleteMemoriesRequest(filter=filter_to(where)))

    async def delete_all(self) -> DeletedMemories:
        """Delete all of the user's memories of every source, for good."""
        return await self._delete(pb.DeleteMemoriesRequest(all=True))

    async def embed(self, texts: Iterable[str], purpose: EmbedPurpose = EmbedPurpose.DOCUMENT) -> Embeddings:
        """The vectors of up to 128 texts, from the model that search uses. Nothing is stored."""
        request = pb.EmbedTextRequest(texts=texts_to(texts), purpose=purpose_to(purpose))
        response = await self._transport.unary(self._stub.EmbedText, request, repeat=Repeat.SAFE)
        return embeddings_from(response)

    async def stats(self) -> MemoryStats:
        """Counts by source, the size of the index, the model, and how far indexing lags."""
        request = pb.GetMemoryStatsRequest()
        response = await self._transport.unary(self._stub.GetMemoryStats, request, repeat=Repeat.SAFE)
        return stats_from(response.stats)

    async def _delete(self, request: pb.DeleteMemoriesRequest) -> DeletedMemories:
        response = await self._transport.unary(self._stub.DeleteMemories, request, repeat=Repeat.SAFE)
        return DeletedMemories(response.deleted_count, tuple(response.not_found), response.memory_token)
