"""Documents in memory."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from sage.v1 import memory_service_pb2 as pb
from sage_client._async.paging import every
from sage_client._async.transport import AsyncTransport
from sage_client._wire.documents import document_from, ingest_event_from
from sage_client._wire.enums import status_to, trust_to
from sage_client._wire.values import texts_to
from sage_client.errors import cut_short
from sage_client.models.documents import Document, DocumentStatus, IngestDone, IngestEvent
from sage_client.models.memory import DeletedMemories, MemoryTrust
from sage_client.models.page import Page
from sage_client.retry import Repeat

if TYPE_CHECKING:
    from sage.v1.memory_service_pb2_grpc import MemoryServiceAsyncStub


class AsyncDocuments:
    """`client.memory.documents`: text, Markdown, HTML and PDF files that are taken into memory in chunks."""

    def __init__(self, transport: AsyncTransport, stub: MemoryServiceAsyncStub) -> None:
        self._transport = transport
        self._stub = stub

    def ingest(
        self,
        content: bytes | os.PathLike[str],
        *,
        media_type: str = "",
        title: str = "",
        external_id: str = "",
        tags: Collection[str] = (),
        metadata: Mapping[str, str] | None = None,
        agent: str = "",
        trust: MemoryTrust | None = None,
        request_id: str | None = None,
    ) -> AsyncIterator[IngestEvent]:
        """Take a document into memory: IngestAccepted, IngestProgress, and IngestDone at the end.

        Iterate to the end to be sure; `add` does that for you. All of it is stored or nothing. Content that
        is there already is skipped, so a document can simply be given again after a failure.

        - `content`: bytes of up to 32 MiB, or the path of a file.
        - `media_type`: default: found out from the content.
        - `external_id`: your own name for it; a document with this name is replaced.
        - `trust`: default: EXTERNAL.
        """
        request = pb.IngestDocumentRequest(
            content=Path(content).read_bytes() if isinstance(content, os.PathLike) else content,
            media_type=media_type,
            title=title,
            external_id=external_id,
            tags=texts_to(tags),
            metadata=metadata,
            agent=agent,
            trust=trust_to(trust),
            request_id=request_id or str(uuid4()),
        )
        return self._ingest(request)

    async def add(
        self,
        content: bytes | os.PathLike[str],
        *,
        media_type: str = "",
        title: str = "",
        external_id: str = "",
        tags: Collection[str] = (),
        metadata: Mapping[str, str] | None = None,
        agent: str = "",
        trust: MemoryTrust | None = None,
        request_id: str | None = None,
        on_event: Callable[[IngestEvent], None] | None = None,
    ) -> IngestDone:
        """Take a document into memory and wait until it is there. The arguments are those of `ingest`."""
        events = self.ingest(
            content,
            media_type=media_type,
            title=title,
            external_id=external_id,
            tags=tags,
            metadata=metadata,
            agent=agent,
            trust=trust,
            request_id=request_id,
        )
        done = None
        async for event in events:
            if on_event is not None:
                on_event(event)
            if isinstance(event, IngestDone):
                done = event
        assert done is not None  # else `ingest` has raised
        return done

    async def get(self, document_id: str) -> Document:
        """Read one document."""
        request = pb.GetDocumentRequest(document_id=document_id)
        response = await self._transport.unary(self._stub.GetDocument, request, repeat=Repeat.SAFE)
        return document_from(response.document)

    def list(
        self,
        *,
        external_id: str = "",
        tags: Collection[str] = (),
        agent: str = "",
        statuses: Collection[DocumentStatus] = (),
        page_size: int = 0,
    ) -> AsyncIterator[Document]:
        """All documents, the newest first, fetched page by page while you iterate.

        With `tags`, those that have at least one of them; with `agent`, only that agent's own.
        """
        fetch = partial(
            self.list_page,
            external_id=external_id,
            tags=tags,
            agent=agent,
            statuses=statuses,
            page_size=page_size,
        )
        return every(fetch)

    async def list_page(
        self,
        *,
        page_token: str = "",
        external_id: str = "",
        tags: Collection[str] = (),
        agent: str = "",
        statuses: Collection[DocumentStatus] = (),
        page_size: int = 0,
    ) -> Page[Document]:
        """One page. A token works only with the filters and user that it came from."""
        request = pb.ListDocumentsRequest(
            page_size=page_size,
            page_token=page_token,
            external_id=external_id,
            tags=texts_to(tags),
            agent=agent,
            statuses=[status_to(status) for status in statuses],
        )
        response = await self._transport.unary(self._stub.ListDocuments, request, repeat=Repeat.SAFE)
        return Page(tuple(document_from(message) for message in response.documents), response.next_page_token)

    async def delete(self, document_id: str) -> DeletedMemories:
        """Delete a document and all its chunks, for good."""
        request = pb.DeleteDocumentRequest(document_id=document_id)
        # A repeat of a delete that was carried out is NOT_FOUND, which would hide that it worked.
        stub = self._stub.DeleteDocument
        response = await self._transport.unary(stub, request, repeat=Repeat.IF_REFUSED)
        return DeletedMemories(response.deleted_count, (), response.memory_token)

    async def _ingest(self, request: pb.IngestDocumentRequest) -> AsyncIterator[IngestEvent]:
        responses = self._transport.stream(self._stub.IngestDocument, request, repeat=Repeat.SAFE)
        complete = False
        async for response in responses:
            event = ingest_event_from(response)
            if event is not None:
                complete = isinstance(event, IngestDone)
                yield event
        if not complete:
            raise cut_short("ingestion")
