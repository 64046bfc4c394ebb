"""The Python client of Sage.

    import sage_client

    with sage_client.connect(token="sage_sk_…", user="maria") as client:
        thread = client.conversations.create("Garden")
        client.conversations.append(thread.id, [sage_client.NewItem.user("When do I sow beans?")])
        for item in client.conversations.items(thread.id):
            print(item.kind, item.text)

`connect` gives a SageClient, `connect_async` an AsyncSageClient with the same methods to await; call the
latter inside a running event loop. Every failed call raises a SageError.
"""

from sage_client._async.client import AsyncSageClient
from sage_client._async.client import connect as connect_async
from sage_client._sync.client import SageClient, connect
from sage_client.errors import (
    Aborted,
    AlreadyExists,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    Failure,
    FieldViolation,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    SageError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    Unknown,
)
from sage_client.models.admin import (
    ApiKey,
    ApiKeyRole,
    CreatedApiKey,
    DeadJob,
    Erasure,
    JobQueueStats,
    Replica,
    RootKeyRotation,
    ServerInfo,
    User,
)
from sage_client.models.blocks import Block, BlockActor, BlockRevision
from sage_client.models.conversations import BatchDeleted, Conversation, ConversationMemory, ConversationOrder
from sage_client.models.documents import (
    Document,
    DocumentStatus,
    IngestAccepted,
    IngestDone,
    IngestEvent,
    IngestProgress,
    IngestStage,
)
from sage_client.models.items import AppendedItem, Item, ItemKind, ItemOrder, NewItem, ToolInvocation
from sage_client.models.memory import (
    DeletedMemories,
    Embeddings,
    EmbedPurpose,
    FloatArray,
    InsertedMemories,
    Memory,
    MemoryFilter,
    MemorySource,
    MemorySourceCount,
    MemoryStats,
    MemoryTrust,
    NewMemory,
    Provenance,
    TagMatch,
    Vector,
    WrittenMemory,
)
from sage_client.models.page import Page
from sage_client.models.scratchpads import Scratchpad
from sage_client.models.search import ScoreEvidence, SearchQuery, SearchResult, SearchResults
from sage_client.models.transfer import (
    ExportChunk,
    ExportDone,
    ExportEvent,
    ExportProgress,
    ImportDone,
    ImportProgress,
)
from sage_client.options import TlsOptions, Token
from sage_client.retry import Repeat, RetryPolicy

__all__ = [
    "Aborted",
    "AlreadyExists",
    "ApiKey",
    "ApiKeyRole",
    "AppendedItem",
    "AsyncSageClient",
    "BatchDeleted",
    "Block",
    "BlockActor",
    "BlockRevision",
    "Cancelled",
    "Conversation",
    "ConversationMemory",
    "ConversationOrder",
    "CreatedApiKey",
    "DataLoss",
    "DeadJob",
    "DeadlineExceeded",
    "DeletedMemories",
    "Document",
    "DocumentStatus",
    "EmbedPurpose",
    "Embeddings",
    "Erasure",
    "ExportChunk",
    "ExportDone",
    "ExportEvent",
    "ExportProgress",
    "FailedPrecondition",
    "Failure",
    "FieldViolation",
    "FloatArray",
    "ImportDone",
    "ImportProgress",
    "IngestAccepted",
    "IngestDone",
    "IngestEvent",
    "IngestProgress",
    "IngestStage",
    "InsertedMemories",
    "Internal",
    "InvalidArgument",
    "Item",
    "ItemKind",
    "ItemOrder",
    "JobQueueStats",
    "Memory",
    "MemoryFilter",
    "MemorySource",
    "MemorySourceCount",
    "MemoryStats",
    "MemoryTrust",
    "NewItem",
    "NewMemory",
    "NotFound",
    "OutOfRange",
    "Page",
    "PermissionDenied",
    "Provenance",
    "Repeat",
    "Replica",
    "ResourceExhausted",
    "RetryPolicy",
    "RootKeyRotation",
    "SageClient",
    "SageError",
    "ScoreEvidence",
    "Scratchpad",
    "SearchQuery",
    "SearchResult",
    "SearchResults",
    "ServerInfo",
    "TagMatch",
    "TlsOptions",
    "Token",
    "ToolInvocation",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Unknown",
    "User",
    "Vector",
    "WrittenMemory",
    "connect",
    "connect_async",
]
