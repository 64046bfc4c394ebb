"""What a user's memory is built of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sage_server.adapters.documents import FileDocumentReader
from sage_server.adapters.postgres.blocks import PostgresBlockStore
from sage_server.adapters.postgres.conversations import PostgresConversationStore
from sage_server.adapters.postgres.database import Database
from sage_server.adapters.postgres.documents import PostgresDocumentStore
from sage_server.adapters.postgres.items import PostgresItemStore
from sage_server.adapters.postgres.jobs import PostgresJobQueue
from sage_server.adapters.postgres.memories import PostgresMemoryStore
from sage_server.adapters.postgres.memory_stats import PostgresMemoryStatsStore
from sage_server.adapters.postgres.reembedding import PostgresReembeddingStore
from sage_server.adapters.postgres.scratchpads import PostgresScratchpadStore
from sage_server.domain.jobs import JobKind
from sage_server.engine.agents import NoAgents
from sage_server.engine.memory_index.cache import IndexCache
from sage_server.engine.memory_scopes import MemoryScopes
from sage_server.engine.memory_writer import MemoryWriter
from sage_server.engine.usage import UsageMeter
from sage_server.ports.clock import Clock
from sage_server.ports.embedding import Embedders
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
from sage_server.services.memory_search import MemorySearch
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
    conversations: PostgresConversationStore
    items: PostgresItemStore
    queue: PostgresJobQueue
    pages: PageTokens


def build_memory(needs: MemoryNeeds) -> MemoryParts:
    """Stores, engine, services and servicers of MemoryService."""
    database, keys, clock = needs.database, needs.keys, needs.clock
    embedders, usage, pages = needs.embedders, needs.usage, needs.pages
    agents = NoAgents()
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
        items=needs.items, memories=store, writer=writer, clock=clock, enabled=needs.settings.recall
    )
    reembedding = Reembedding(
        store=PostgresReembeddingStore(database, keys),
        memories=store,
        writer=writer,
        embedders=embedders,
        queue=needs.queue,
    )
    return MemoryParts(
        embedders=embedders,
        indexes=indexes,
        writer=writer,
        documents=documents,
        reembedding=reembedding,
        servicers=[
            BlockServicer(
                Blocks(blocks=PostgresBlockStore(database, keys), agents=agents, clock=clock), pages
            ),
            ScratchpadServicer(
                Scratchpads(scratchpads=PostgresScratchpadStore(database, keys), agents=agents, clock=clock)
            ),
            MemoryServicer(
                Memories(store, writer, clock),
                MemorySearch(store, indexes, embedders, usage),
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
