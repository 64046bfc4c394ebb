"""Documents: taken in, in chunks, and deleted with them."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias
from uuid import UUID

from sage_server.domain.chunks import Chunk, chunked, distinct
from sage_server.domain.documents import Document, document_too_large
from sage_server.domain.errors import SageError, overloaded
from sage_server.domain.idempotency import Once
from sage_server.domain.jobs import Job
from sage_server.domain.memories import MemoryTrust
from sage_server.domain.paging import Page, TimeCursor
from sage_server.engine.detached import Detached
from sage_server.engine.document_plan import Plan, planned
from sage_server.engine.memory_writer import MemoryWriter
from sage_server.ports.clock import Clock
from sage_server.ports.document_store import (
    Acceptance,
    Completed,
    DocumentFilter,
    DocumentStore,
    NewDocument,
    Pending,
    Refusal,
    Repeated,
    Taken,
    Unchanged,
)
from sage_server.ports.documents import DocumentReader
from sage_server.ports.memories import MemoryStore, NewMemory, Removed, Space

MAX_CHUNKS = 20_000
_MOST_RUNNING = 32
"""Documents that run or wait in this process. Each holds its text."""
_EMBED_BATCH = 128


@dataclass(frozen=True)
class DocumentDraft:
    """A document as a caller gives it."""

    content: bytes
    media_type: str = ""
    title: str = ""
    external_id: str = ""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, str] | None = None
    agent_id: UUID | None = None
    trust: MemoryTrust = MemoryTrust.EXTERNAL


class IngestStage(IntEnum):
    """What is being done. The numbers are those of the contract."""

    READING = 1
    CHUNKING = 2
    EMBEDDING = 3
    STORING = 4


@dataclass(frozen=True)
class IngestAccepted:
    """The document is stored and will be taken in."""

    document: Document


@dataclass(frozen=True)
class IngestProgress:
    """How far it is. `total` is 0 while it is not known."""

    stage: IngestStage
    done: int
    total: int


@dataclass(frozen=True)
class IngestDone:
    """The document is in memory."""

    document: Document
    revision: int
    skipped: bool = False
    added: int = 0
    reused: int = 0
    deleted: int = 0


IngestEvent: TypeAlias = IngestAccepted | IngestProgress | IngestDone
_Tell: TypeAlias = Callable[[IngestProgress], None]
_Run: TypeAlias = Detached[IngestProgress, IngestDone | None]


class Documents:
    """What a caller can do with documents.

    Taking one in is work of its own: it goes on when the caller goes away. What this process leaves undone,
    a job does later, here or elsewhere. At most `at_once` are taken in at a time.
    """

    def __init__(
        self,
        *,
        store: DocumentStore,
        reader: DocumentReader,
        writer: MemoryWriter,
        memories: MemoryStore,
        clock: Clock,
        at_once: int = 4,
    ) -> None:
        self._store = store
        self._reader = reader
        self._writer = writer
        self._memories = memories
        self._clock = clock
        self._turn = asyncio.Semaphore(at_once)
        self._running: dict[tuple[UUID, UUID, int], _Run] = {}

    async def take_in(
        self, user_id: UUID, draft: DocumentDraft, once: Once | None
    ) -> AsyncIterator[IngestEvent]:
        """Read a document and take it into memory. The last event is IngestDone.

        What cannot be read is refused before anything is stored.
        """
        if len(self._running) >= _MOST_RUNNING:
            raise overloaded("Too many documents are being taken in.")
        accepted = await self._accepted(user_id, draft, once)
        if isinstance(accepted, Unchanged):
            document = accepted.document
            yield IngestDone(document, accepted.revision, skipped=True, reused=document.chunk_count)
            return
        document_id = accepted.document_id if isinstance(accepted, Repeated) else accepted.document.id
        state = accepted if isinstance(accepted, Pending) else None
        async for event in self._followed(user_id, document_id, state):
            yield event

    async def ingest(self, job: Job) -> None:
        """Finish a document that was left undone. One that is gone is NOT_FOUND."""
        while isinstance(state := await self._store.state(job.user_id, job.subject), Pending):
            if await self._run(job.user_id, state).result() is not None:
                return

    async def get(self, user_id: UUID, document_id: UUID) -> Document:
        """One document."""
        return await self._store.get(user_id, document_id)

    async def list(
        self, user_id: UUID, which: DocumentFilter, size: int, after: TimeCursor | None
    ) -> Page[Document, TimeCursor]:
        """A page, the newest first."""
        return await self._store.list(user_id, which, size, after)

    async def delete(self, user_id: UUID, document_id: UUID) -> Removed:
        """A document and its chunks, for good."""
        removed = await self._store.delete(user_id, document_id, self._clock.now())
        await self._writer.removed(user_id, removed)
        return removed

    async def close(self) -> None:
        """Stop what is being taken in; jobs finish it."""
        await asyncio.gather(*(run.stop() for run in list(self._running.values())))

    async def _accepted(self, user_id: UUID, draft: DocumentDraft, once: Once | None) -> Acceptance:
        earlier = None if once is None else await self._store.accepted_before(user_id, once)
        if earlier is not None:
            return earlier
        read = await self._reader.read(draft.content, draft.media_type)
        digest, count = await asyncio.to_thread(_measured, draft.content, read.media_type, read.text)
        if count > MAX_CHUNKS:
            raise document_too_large(MAX_CHUNKS, "chunks")
        new = NewDocument(
            title=draft.title or read.title,
            external_id=draft.external_id,
            media_type=read.media_type,
            digest=digest,
            byte_count=len(draft.content),
            text=read.text,
            tags=draft.tags,
            metadata=draft.metadata or {},
            agent_id=draft.agent_id,
            trust=draft.trust,
        )
        return await self._store.accept(user_id, new, once, self._clock.now())

    async def _followed(
        self, user_id: UUID, document_id: UUID, state: Pending | Document | None
    ) -> AsyncIterator[IngestEvent]:
        """The document until it is settled, also if somebody gives it other content on the way."""
        announced = False
        while True:
            state = state or await self._store.state(user_id, document_id)
            if isinstance(state, Document):
                yield await self._settled(user_id, state)
                return
            run = self._run(user_id, state)
            events = run.events()
            if not announced:
                announced = True
                yield IngestAccepted(state.document)
            async for event in events:
                yield event
            done = await run.result()
            if done is not None:
                yield done
                return
            state = None

    async def _settled(self, user_id: UUID, document: Document) -> IngestDone:
        """What somebody else brought to its end."""
        if document.failure is not None:
            raise SageError(document.failure, "The document could not be taken in.")
        revision = (await self._memories.head(user_id)).revision
        return IngestDone(document, revision, skipped=True, reused=document.chunk_count)

    def _run(self, user_id: UUID, pending: Pending) -> _Run:
        """The work on this content, begun if this process is not at it already."""
        key = (user_id, pending.document.id, pending.version)
        run = self._running.get(key)
        if run is None:

            async def work(tell: _Tell) -> IngestDone | None:
                return await self._work(user_id, pending, tell)

            run = self._running[key] = Detached(work, "ingest-document")
            run.when_done(lambda: self._running.pop(key, None))
        return run

    async def _work(self, user_id: UUID, pending: Pending, tell: _Tell) -> IngestDone | None:
        """None if the document is gone, settled or has other content by now."""
        try:
            async with self._turn:
                return await self._stored(user_id, pending, tell)
        except SageError as error:
            # What may pass is left to the job, which tries for a day.
            if error.retry_after is None:
                await self._store.fail(user_id, pending, error.reason)
            raise

    async def _stored(self, user_id: UUID, pending: Pending, tell: _Tell) -> IngestDone | None:
        tell(IngestProgress(IngestStage.READING, 0, 0))
        chunks = await asyncio.to_thread(_chunks, pending.text)
        tell(IngestProgress(IngestStage.CHUNKING, len(chunks), len(chunks)))
        while True:
            space = await self._writer.space(user_id)
            plan = await self._planned(user_id, pending.document, chunks, space)
            added = await self._embedded(user_id, plan, space, tell)
            tell(IngestProgress(IngestStage.STORING, 0, len(chunks)))
            written = [*plan.embedded, *added]
            taken = Taken(pending, space, len(chunks), written, plan.gone)
            answer = await self._store.complete(user_id, taken, self._clock.now())
            if isinstance(answer, Completed):
                tell(IngestProgress(IngestStage.STORING, len(chunks), len(chunks)))
                await self._index(user_id, answer.revision, plan, written, space)
                return IngestDone(
                    document=answer.document,
                    revision=answer.revision,
                    added=len(chunks) - plan.reused,
                    reused=plan.reused,
                    deleted=len(plan.gone),
                )
            if answer is Refusal.SUPERSEDED:
                return None
            await self._writer.refresh(user_id)

    async def _planned(
        self, user_id: UUID, document: Document, chunks: Sequence[Chunk], space: Space
    ) -> Plan:
        before = [batch async for batch in self._store.chunks(user_id, document.id, space)]
        return await asyncio.to_thread(planned, document, chunks, before, space, self._clock.now())

    async def _embedded(self, user_id: UUID, plan: Plan, space: Space, tell: _Tell) -> Sequence[NewMemory]:
        """In batches, with no transaction open."""
        waiting = plan.unembedded
        made: list[NewMemory] = []
        for start in range(0, len(waiting), _EMBED_BATCH):
            tell(IngestProgress(IngestStage.EMBEDDING, start, len(waiting)))
            await self._memories.head(user_id)  # nothing of an erased user goes to a provider
            batch = waiting[start : start + _EMBED_BATCH]
            vectors = await self._writer.embed(user_id, [memory.text for memory in batch], space)
            if vectors is None:
                made += [NewMemory(memory._replace(embedding_model=""), None) for memory in batch]
                continue
            made += [
                NewMemory(memory._replace(embedding_model=space.model), vector)
                for memory, vector in zip(batch, vectors, strict=True)
            ]
        tell(IngestProgress(IngestStage.EMBEDDING, len(waiting), len(waiting)))
        return made

    async def _index(
        self, user_id: UUID, revision: int, plan: Plan, written: Sequence[NewMemory], space: Space
    ) -> None:
        """In this process's index before it is said."""
        if plan.reused or plan.gone:
            await self._writer.refresh(user_id)
        else:
            await self._writer.index(user_id, revision, written, space)


def _chunks(text: str) -> Sequence[Chunk]:
    return distinct(chunked(text))


def _measured(content: bytes, media_type: str, text: str) -> tuple[str, int]:
    """A digest of content and media type, and how many chunks the text has."""
    return hashlib.sha256(f"{media_type}\0".encode() + content).hexdigest(), len(_chunks(text))
