"""MemoryService, the documents: decode, one call, encode."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

from sage.v1 import memory_service_pb2 as pb
from sage_server.domain.identity import Caller
from sage_server.domain.paging import page_size
from sage_server.engine.memory_scopes import MemoryScopes
from sage_server.rpc.document_mapping import (
    from_document,
    from_document_filter,
    to_document,
    to_done,
    to_under_way,
)
from sage_server.rpc.mapping import once
from sage_server.rpc.memory_tokens import MemoryTokens
from sage_server.rpc.page_tokens import PageTokens, decode_time, encode_time
from sage_server.services.documents import Documents, IngestDone


class DocumentServicer:
    """Documents in memory."""

    def __init__(
        self, documents: Documents, scopes: MemoryScopes, pages: PageTokens, tokens: MemoryTokens
    ) -> None:
        self._documents = documents
        self._scopes = scopes
        self._pages = pages
        self._tokens = tokens

    async def ingest_document(
        self, request: pb.IngestDocumentRequest, caller: Caller
    ) -> AsyncIterator[pb.IngestDocumentResponse]:
        """How far it is, then what was done."""
        draft = from_document(request, await self._scopes.agent(caller.user_id, request.agent))
        async for event in self._documents.take_in(caller.user_id, draft, once(request)):
            if isinstance(event, IngestDone):
                yield to_done(event, await self._tokens.write(caller.user_id, event.revision))
            else:
                yield to_under_way(event)

    async def get_document(self, request: pb.GetDocumentRequest, caller: Caller) -> pb.GetDocumentResponse:
        """One document."""
        found = await self._documents.get(caller.user_id, UUID(request.document_id))
        return pb.GetDocumentResponse(document=to_document(found))

    async def list_documents(
        self, request: pb.ListDocumentsRequest, caller: Caller
    ) -> pb.ListDocumentsResponse:
        """A page of documents."""
        page = await self._documents.list(
            caller.user_id,
            from_document_filter(request, await self._scopes.agent(caller.user_id, request.agent)),
            page_size(request.page_size),
            await self._pages.read(caller.user_id, request, decode_time),
        )
        return pb.ListDocumentsResponse(
            documents=[to_document(row) for row in page.rows],
            next_page_token=await self._pages.write(caller.user_id, request, encode_time(page.next)),
        )

    async def delete_document(
        self, request: pb.DeleteDocumentRequest, caller: Caller
    ) -> pb.DeleteDocumentResponse:
        """A document with its chunks, for good."""
        removed = await self._documents.delete(caller.user_id, UUID(request.document_id))
        return pb.DeleteDocumentResponse(
            deleted_count=len(removed.ids),
            memory_token=await self._tokens.write(caller.user_id, removed.revision),
        )
