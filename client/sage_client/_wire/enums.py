"""Enums, by name and in both directions. What only a newer server knows is read as UNKNOWN."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from sage.v1 import (
    admin_pb2,
    conversation_pb2,
    conversation_service_pb2,
    error_reason_pb2,
    item_pb2,
    memory_pb2,
    memory_service_pb2,
)
from sage_client.models.admin import ApiKeyRole, FlagScope
from sage_client.models.blocks import BlockActor
from sage_client.models.conversations import ConversationMemory, ConversationOrder
from sage_client.models.documents import DocumentStatus, IngestStage
from sage_client.models.items import ItemKind, ItemOrder
from sage_client.models.memory import EmbedPurpose, MemorySource, MemoryTrust, TagMatch

REASON_PREFIX = "ERROR_REASON_"

_MEMORY = {
    ConversationMemory.NONE: conversation_pb2.CONVERSATION_MEMORY_NONE,
    ConversationMemory.AGENT: conversation_pb2.CONVERSATION_MEMORY_AGENT,
}
_KIND = {
    ItemKind.USER: item_pb2.ITEM_KIND_USER,
    ItemKind.ASSISTANT: item_pb2.ITEM_KIND_ASSISTANT,
    ItemKind.TOOL_CALL: item_pb2.ITEM_KIND_TOOL_CALL,
    ItemKind.TOOL_OUTPUT: item_pb2.ITEM_KIND_TOOL_OUTPUT,
    ItemKind.REASONING: item_pb2.ITEM_KIND_REASONING,
    ItemKind.SYSTEM: item_pb2.ITEM_KIND_SYSTEM,
}
_ROLE = {
    ApiKeyRole.SERVICE: admin_pb2.API_KEY_ROLE_SERVICE,
    ApiKeyRole.ADMIN: admin_pb2.API_KEY_ROLE_ADMIN,
    ApiKeyRole.OPERATOR: admin_pb2.API_KEY_ROLE_OPERATOR,
}
_FLAG_SCOPE = {
    FlagScope.GLOBAL: admin_pb2.FLAG_SCOPE_GLOBAL,
    FlagScope.TENANT: admin_pb2.FLAG_SCOPE_TENANT,
    FlagScope.USER: admin_pb2.FLAG_SCOPE_USER,
}
_CONVERSATION_ORDER = {
    ConversationOrder.CREATED: conversation_service_pb2.CONVERSATION_ORDER_CREATED,
    ConversationOrder.ACTIVE: conversation_service_pb2.CONVERSATION_ORDER_ACTIVE,
}
_ITEM_ORDER = {
    ItemOrder.OLDEST_FIRST: item_pb2.ITEM_ORDER_OLDEST_FIRST,
    ItemOrder.NEWEST_FIRST: item_pb2.ITEM_ORDER_NEWEST_FIRST,
}
_SOURCE = {
    MemorySource.ARCHIVAL: memory_pb2.MEMORY_SOURCE_ARCHIVAL,
    MemorySource.MESSAGE: memory_pb2.MEMORY_SOURCE_MESSAGE,
    MemorySource.DOCUMENT: memory_pb2.MEMORY_SOURCE_DOCUMENT,
    MemorySource.SUMMARY: memory_pb2.MEMORY_SOURCE_SUMMARY,
}
_TRUST = {
    MemoryTrust.USER: memory_pb2.MEMORY_TRUST_USER,
    MemoryTrust.AGENT: memory_pb2.MEMORY_TRUST_AGENT,
    MemoryTrust.EXTERNAL: memory_pb2.MEMORY_TRUST_EXTERNAL,
}
_TAG_MATCH = {
    TagMatch.ANY: memory_pb2.TAG_MATCH_ANY,
    TagMatch.ALL: memory_pb2.TAG_MATCH_ALL,
}
_PURPOSE = {
    EmbedPurpose.DOCUMENT: memory_service_pb2.EMBED_PURPOSE_DOCUMENT,
    EmbedPurpose.QUERY: memory_service_pb2.EMBED_PURPOSE_QUERY,
}
_STATUS = {
    DocumentStatus.PROCESSING: memory_pb2.DOCUMENT_STATUS_PROCESSING,
    DocumentStatus.READY: memory_pb2.DOCUMENT_STATUS_READY,
    DocumentStatus.FAILED: memory_pb2.DOCUMENT_STATUS_FAILED,
}
_STAGE_FROM = {
    memory_service_pb2.INGEST_STAGE_READING: IngestStage.READING,
    memory_service_pb2.INGEST_STAGE_CHUNKING: IngestStage.CHUNKING,
    memory_service_pb2.INGEST_STAGE_EMBEDDING: IngestStage.EMBEDDING,
    memory_service_pb2.INGEST_STAGE_STORING: IngestStage.STORING,
}
_ACTOR_FROM = {
    memory_pb2.BLOCK_ACTOR_USER: BlockActor.USER,
    memory_pb2.BLOCK_ACTOR_AGENT: BlockActor.AGENT,
    memory_pb2.BLOCK_ACTOR_SYSTEM: BlockActor.SYSTEM,
}
_MEMORY_FROM = {number: value for value, number in _MEMORY.items()}
_KIND_FROM = {number: value for value, number in _KIND.items()}
_ROLE_FROM = {number: value for value, number in _ROLE.items()}
_FLAG_SCOPE_FROM = {number: value for value, number in _FLAG_SCOPE.items()}
_SOURCE_FROM = {number: value for value, number in _SOURCE.items()}
_TRUST_FROM = {number: value for value, number in _TRUST.items()}
_STATUS_FROM = {number: value for value, number in _STATUS.items()}


def memory_to(value: ConversationMemory) -> conversation_pb2.ConversationMemory.ValueType:
    """Raises ValueError for UNKNOWN."""
    return _MEMORY[known(value)]


def memory_from(number: conversation_pb2.ConversationMemory.ValueType) -> ConversationMemory:
    """The memory mode."""
    return _MEMORY_FROM.get(number, ConversationMemory.UNKNOWN)


def kind_to(value: ItemKind) -> item_pb2.ItemKind.ValueType:
    """Raises ValueError for UNKNOWN."""
    return _KIND[known(value)]


def kind_from(number: item_pb2.ItemKind.ValueType) -> ItemKind:
    """The kind of item."""
    return _KIND_FROM.get(number, ItemKind.UNKNOWN)


def role_to(value: ApiKeyRole) -> admin_pb2.ApiKeyRole.ValueType:
    """Raises ValueError for UNKNOWN."""
    return _ROLE[known(value)]


def role_from(number: admin_pb2.ApiKeyRole.ValueType) -> ApiKeyRole:
    """The role."""
    return _ROLE_FROM.get(number, ApiKeyRole.UNKNOWN)


def flag_scope_to(value: FlagScope | None) -> admin_pb2.FlagScope.ValueType:
    """None is every level. Raises ValueError for UNKNOWN."""
    return admin_pb2.FLAG_SCOPE_UNSPECIFIED if value is None else _FLAG_SCOPE[known(value)]


def flag_scope_from(number: admin_pb2.FlagScope.ValueType) -> FlagScope:
    """The level of a feature flag."""
    return _FLAG_SCOPE_FROM.get(number, FlagScope.UNKNOWN)


def conversation_order_to(value: ConversationOrder) -> conversation_service_pb2.ConversationOrder.ValueType:
    """The order of conversations."""
    return _CONVERSATION_ORDER[value]


def item_order_to(value: ItemOrder) -> item_pb2.ItemOrder.ValueType:
    """The order of items."""
    return _ITEM_ORDER[value]


def source_to(value: MemorySource) -> memory_pb2.MemorySource.ValueType:
    """Raises ValueError for UNKNOWN."""
    return _SOURCE[known(value)]


def source_from(number: memory_pb2.MemorySource.ValueType) -> MemorySource:
    """What a memory comes from."""
    return _SOURCE_FROM.get(number, MemorySource.UNKNOWN)


def trust_to(value: MemoryTrust | None) -> memory_pb2.MemoryTrust.ValueType:
    """None leaves it to the server. Raises ValueError for UNKNOWN."""
    return memory_pb2.MEMORY_TRUST_UNSPECIFIED if value is None else _TRUST[known(value)]


def trust_from(number: memory_pb2.MemoryTrust.ValueType) -> MemoryTrust:
    """How far a text may be trusted."""
    return _TRUST_FROM.get(number, MemoryTrust.UNKNOWN)


def tag_match_to(value: TagMatch) -> memory_pb2.TagMatch.ValueType:
    """How tags must match."""
    return _TAG_MATCH[value]


def purpose_to(value: EmbedPurpose) -> memory_service_pb2.EmbedPurpose.ValueType:
    """What a vector is for."""
    return _PURPOSE[value]


def status_to(value: DocumentStatus) -> memory_pb2.DocumentStatus.ValueType:
    """Raises ValueError for UNKNOWN."""
    return _STATUS[known(value)]


def status_from(number: memory_pb2.DocumentStatus.ValueType) -> DocumentStatus:
    """Where a document is."""
    return _STATUS_FROM.get(number, DocumentStatus.UNKNOWN)


def stage_from(number: memory_service_pb2.IngestStage.ValueType) -> IngestStage:
    """The stage of taking in a document."""
    return _STAGE_FROM.get(number, IngestStage.UNKNOWN)


def actor_from(number: memory_pb2.BlockActor.ValueType) -> BlockActor:
    """Who changed a block."""
    return _ACTOR_FROM.get(number, BlockActor.UNKNOWN)


def reason_from(number: error_reason_pb2.ErrorReason.ValueType) -> str | None:
    """The name as `SageError.reason` has it, or None if there is none."""
    if not number:
        return None
    reason = error_reason_pb2.ErrorReason.DESCRIPTOR.values_by_number.get(number)
    return reason.name.removeprefix(REASON_PREFIX) if reason is not None else "UNKNOWN"


E = TypeVar("E", bound=StrEnum)


def known(value: E) -> E:
    """The value itself. Raises ValueError for UNKNOWN, which only stands for what was read."""
    if value.name == "UNKNOWN":
        raise ValueError(f"{type(value).__name__}.UNKNOWN cannot be sent")
    return value
