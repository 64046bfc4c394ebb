"""What a user's memory is built of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sage_server.adapters.documents import FileDocumentReader
from sage_server.adapters.postgres.agents import PostgresAgentStore
from sage_server.adapters.postgres.blocks import PostgresBlockStore
from sage_server.adapters.postgres.conversations import PostgresConversationStore
from sage_server.adapters.postgres.database import Database
from sage_server.adapters.postgres.documents import PostgresDocumentStore
from sage_server.adapters.postgres.jobs import PostgresJobQueue
from sage_server.adapters.postgres.memories import PostgresMemoryStore
from sage_server.adapters.postgres.memory_stats import PostgresMemoryStatsStore
from sage_server.adapters.postgres.reembedding import PostgresReembeddingStore
from sage_server.adapters.postgres.scratchpads import PostgresScratchpadStore
from sage_server.adapters.postgres.summaries import PostgresSummaryStore
from sage_server.adapters.postgres.transcripts import PostgresTranscriptStore
from sage_server.domain.jobs import JobKind
from sage_server.engine.memory_index.cache import IndexCache
from sage_server.engine.memory_scopes import MemoryScopes
from sage_server.engine.memory_search import MemorySearch
from sage_server.engine.memory_writer import MemoryWriter
from sage_server.engine.usage import UsageMeter
from sage_server.ports.clock import Clock
from sage_server.ports.embedding import Embedders
from sage_server.ports.flags import Flags
from sage_server.ports.keys import KeyRing
from sage_server.rpc.block_servicer import BlockServicer
from sage_server.rpc.document_servicer import DocumentServicer
from sage_server.rpc.memory_servicer import MemoryServicer
from sage_server.rpc.memory_stats_servicer import MemoryStatsServicer
from sage_server.rpc.memory_tokens import MemoryTokens
from sage_server.rpc.page_tokens import PageTokens
from sage_server.rpc.scratchpad_servicer import ScratchpadServicer
from sage_server.services.blocks import Blocks
from sage_server.services.documents import Documents
from sage_server.services.embedding import Embedding
from sage_server.services.memories import Memories
from sage_server.services.memory_stats import MemoryStatistics
from sage_server.services.recall import Recall
from sage_server.services.reembedding import Reembedding
from sage_server.services.scratchpads import Scratchpads
from sage_server.settings import Settings
from sage_server.workers.jobs import Handler

_MEGABYTE = 1024 * 1024


@dataclass(frozen=True)
class MemoryParts:
    """What the rest of the application needs of it."""

    embedders: Embedders
    store: PostgresMemoryStore
    blocks: PostgresBlockStore
    scratchpads: PostgresScratchpadStore
    search: MemorySearch
    indexes: IndexCache
    writer: MemoryWriter
    documents: Documents
    reembedding: Reembedding
    servicers: list[object]
    handlers: Mapping[JobKind, Handler]


@dataclass(frozen=True)
class MemoryNeeds:
    """What it is built on."""

    settings: Settings
    database: Database
    keys: KeyRing
    clock: Clock
    embedders: Embedders
    usage: UsageMeter
    flags: Flags
    conversations: PostgresConversationStore
    transcripts: PostgresTranscriptStore
    summaries: PostgresSummaryStore
    queue: PostgresJobQueue
    pages: PageTokens


def build_memory(needs: MemoryNeeds) -> MemoryParts:
    """Stores, engine, services and servicers of MemoryService."""
    database, keys, clock = needs.database, needs.keys, needs.clock
    embedders, usage, pages = needs.embedders, needs.usage, needs.pages
    agents = PostgresAgentStore(database, keys)
    store = PostgresMemoryStore(database, keys)
    indexes = IndexCache(store, needs.settings.index_megabytes * _MEGABYTE)
    writer = MemoryWriter(store, indexes, embedders, usage)
    document_store = PostgresDocumentStore(database, keys)
    documents = Documents(
        store=document_store, reader=FileDocumentReader(), writer=writer, memories=store, clock=clock
    )
    scopes = MemoryScopes(agents, needs.conversations.get, document_store.get, indexes)
    tokens = MemoryTokens(keys)
    recall = Recall(
        transcripts=needs.transcripts,
        summaries=needs.summaries,
        memories=store,
        writer=writer,
        clock=clock,
        flags=needs.flags,
    )
    reembedding = Reembedding(
        store=PostgresReembeddingStore(database, keys),
        memories=store,
        writer=writer,
        embedders=embedders,
        queue=needs.queue,
    )
    blocks = PostgresBlockStore(database, keys)
    scratchpads = PostgresScratchpadStore(database, keys)
    search = MemorySearch(store, indexes, embedders, usage)
    return MemoryParts(
        embedders=embedders,
        store=store,
        blocks=blocks,
        scratchpads=scratchpads,
        search=search,
        indexes=indexes,
        writer=writer,
        documents=documents,
        reembedding=reembedding,
        servicers=[
            BlockServicer(Blocks(blocks=blocks, agents=agents, clock=clock), pages),
            ScratchpadServicer(Scratchpads(scratchpads=scratchpads, agents=agents, clock=clock)),
            MemoryServicer(
                Memories(store, writer, clock),
                search,
                scopes,
                pages,
                tokens,
            ),
            MemoryStatsServicer(
                MemoryStatistics(PostgresMemoryStatsStore(database), store, indexes, embedders),
                Embedding(embedders, writer, indexes, usage),
                tokens,
            ),
            DocumentServicer(documents, scopes, pages, tokens),
        ],
        handlers={
            JobKind.INDEX_ITEMS: recall.index,
            JobKind.REEMBED_USER: reembedding.reembed,
            JobKind.INGEST_DOCUMENT: documents.ingest,
        },
    )
