"""MemoryService, what it does with memories: decode, one call, encode."""

from __future__ import annotations

from uuid import UUID

from sage.v1 import memory_service_pb2 as pb
from sage_server.domain.errors import SageError, at_index
from sage_server.domain.identity import Caller
from sage_server.domain.memories import MemoryFilter
from sage_server.domain.paging import page_size
from sage_server.engine.memory_scopes import AgentNames, MemoryScopes
from sage_server.engine.memory_search import MemorySearch, Search
from sage_server.rpc.mapping import once
from sage_server.rpc.memory_mapping import (
    from_draft,
    from_memory_change,
    from_memory_filter,
    from_search,
    from_vector,
    to_memory,
    to_search_response,
)
from sage_server.rpc.memory_tokens import MemoryTokens
from sage_server.rpc.page_tokens import PageTokens, decode_time, encode_time
from sage_server.services.memories import ArchivalDraft, Memories


class MemoryServicer:
    """Archival memories and search."""

    def __init__(
        self,
        memories: Memories,
        searches: MemorySearch,
        scopes: MemoryScopes,
        pages: PageTokens,
        tokens: MemoryTokens,
    ) -> None:
        self._memories = memories
        self._searches = searches
        self._scopes = scopes
        self._pages = pages
        self._tokens = tokens

    async def insert_memory(self, request: pb.InsertMemoryRequest, caller: Caller) -> pb.InsertMemoryResponse:
        """One archival memory."""
        draft = from_draft(request, await self._scopes.agent(caller.user_id, request.agent))
        memory, revision = await self._memories.insert(caller.user_id, draft, once(request))
        return pb.InsertMemoryResponse(
            memory=to_memory(memory), memory_token=await self._tokens.write(caller.user_id, revision)
        )

    async def batch_insert_memories(
        self, request: pb.BatchInsertMemoriesRequest, caller: Caller
    ) -> pb.BatchInsertMemoriesResponse:
        """Several, all or none."""
        names = self._scopes.names(caller.user_id)
        drafts = [await _draft(names, index, one) for index, one in enumerate(request.requests)]
        ids, revision = await self._memories.insert_many(caller.user_id, drafts, once(request))
        return pb.BatchInsertMemoriesResponse(
            memory_ids=[str(memory_id) for memory_id in ids],
            memory_token=await self._tokens.write(caller.user_id, revision),
        )

    async def get_memory(self, request: pb.GetMemoryRequest, caller: Caller) -> pb.GetMemoryResponse:
        """One of any source."""
        memory = await self._memories.get(caller.user_id, UUID(request.memory_id))
        return pb.GetMemoryResponse(memory=to_memory(memory))

    async def list_memories(self, request: pb.ListMemoriesRequest, caller: Caller) -> pb.ListMemoriesResponse:
        """A page."""
        page = await self._memories.list(
            caller.user_id,
            await self._filter(caller, request.filter),
            page_size(request.page_size),
            await self._pages.read(caller.user_id, request, decode_time),
        )
        return pb.ListMemoriesResponse(
            memories=[to_memory(row) for row in page.rows],
            next_page_token=await self._pages.write(caller.user_id, request, encode_time(page.next)),
        )

    async def update_memory(self, request: pb.UpdateMemoryRequest, caller: Caller) -> pb.UpdateMemoryResponse:
        """The fields that the mask names."""
        memory, revision = await self._memories.update(
            caller.user_id,
            UUID(request.memory_id),
            from_memory_change(request),
            (from_vector(request.embedding), request.embedding_model),
            request.etag,
        )
        return pb.UpdateMemoryResponse(
            memory=to_memory(memory), memory_token=await self._tokens.write(caller.user_id, revision)
        )

    async def delete_memory(self, request: pb.DeleteMemoryRequest, caller: Caller) -> pb.DeleteMemoryResponse:
        """One, for good."""
        removed = await self._memories.delete(caller.user_id, UUID(request.memory_id), request.etag)
        return pb.DeleteMemoryResponse(
            deleted_count=len(removed.ids),
            memory_token=await self._tokens.write(caller.user_id, removed.revision),
        )

    async def delete_memories(
        self, request: pb.DeleteMemoriesRequest, caller: Caller
    ) -> pb.DeleteMemoriesResponse:
        """Several, by ids, by a filter, or all."""
        missing: list[str] = []
        if request.HasField("ids"):
            ids = [UUID(wanted) for wanted in request.ids.ids]
            removed, not_found = await self._memories.delete_ids(caller.user_id, ids)
            missing = [str(memory_id) for memory_id in not_found]
        else:
            which = MemoryFilter()
            if request.HasField("filter"):
                which = await self._filter(caller, request.filter)
            removed = await self._memories.delete_matching(caller.user_id, which)
        return pb.DeleteMemoriesResponse(
            deleted_count=len(removed.ids),
            not_found=missing,
            memory_token=await self._tokens.write(caller.user_id, removed.revision),
        )

    async def search_memories(
        self, request: pb.SearchMemoriesRequest, caller: Caller
    ) -> pb.SearchMemoriesResponse:
        """One search."""
        search = await self._search(caller, self._scopes.names(caller.user_id), request)
        (answer,) = await self._searches.search(caller.user_id, [search], batch=False)
        return to_search_response(answer, await self._tokens.write(caller.user_id, answer.found.revision))

    async def batch_search_memories(
        self, request: pb.BatchSearchMemoriesRequest, caller: Caller
    ) -> pb.BatchSearchMemoriesResponse:
        """Several, on one state of the index."""
        names, searches = self._scopes.names(caller.user_id), []
        for index, one in enumerate(request.requests):
            try:
                searches.append(await self._search(caller, names, one))
            except SageError as error:
                raise at_index(error, index) from error
        answers = await self._searches.search(caller.user_id, searches, batch=True)
        token = await self._tokens.write(caller.user_id, answers[0].found.revision)
        return pb.BatchSearchMemoriesResponse(
            responses=[to_search_response(answer, token) for answer in answers]
        )

    async def _search(self, caller: Caller, names: AgentNames, request: pb.SearchMemoriesRequest) -> Search:
        token = request.consistency.at_least_as_fresh
        at_least = await self._tokens.read(caller.user_id, token) if token else 0
        search = from_search(request, await names.find(request.agent), at_least)
        await self._scopes.check(caller.user_id, search.query.which)
        return search

    async def _filter(self, caller: Caller, request: pb.MemoryFilter) -> MemoryFilter:
        which = from_memory_filter(
            request, await self._scopes.agent(caller.user_id, request.agent), "filter."
        )
        await self._scopes.check(caller.user_id, which)
        return which


async def _draft(names: AgentNames, index: int, request: pb.InsertMemoryRequest) -> ArchivalDraft:
    try:
        return from_draft(request, await names.find(request.agent))
    except SageError as error:
        raise at_index(error, index) from error
