"""Enums, by name and in both directions. What only a newer server knows is read as UNKNOWN."""

from __future__ import annotations

from typing import TypeVar

from sage.v1 import admin_pb2, conversation_pb2, conversation_service_pb2, item_pb2
from sage_client.models.admin import ApiKeyRole
from sage_client.models.conversations import ConversationMemory, ConversationOrder
from sage_client.models.items import ItemKind, ItemOrder

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
_CONVERSATION_ORDER = {
    ConversationOrder.CREATED: conversation_service_pb2.CONVERSATION_ORDER_CREATED,
    ConversationOrder.ACTIVE: conversation_service_pb2.CONVERSATION_ORDER_ACTIVE,
}
_ITEM_ORDER = {
    ItemOrder.OLDEST_FIRST: item_pb2.ITEM_ORDER_OLDEST_FIRST,
    ItemOrder.NEWEST_FIRST: item_pb2.ITEM_ORDER_NEWEST_FIRST,
}
_MEMORY_FROM = {number: value for value, number in _MEMORY.items()}
_KIND_FROM = {number: value for value, number in _KIND.items()}
_ROLE_FROM = {number: value for value, number in _ROLE.items()}


def memory_to(value: ConversationMemory) -> conversation_pb2.ConversationMemory.ValueType:
    """Raises ValueError for UNKNOWN."""
    return _MEMORY[_known(value)]


def memory_from(number: conversation_pb2.ConversationMemory.ValueType) -> ConversationMemory:
    """The memory mode."""
    return _MEMORY_FROM.get(number, ConversationMemory.UNKNOWN)


def kind_to(value: ItemKind) -> item_pb2.ItemKind.ValueType:
    """Raises ValueError for UNKNOWN."""
    return _KIND[_known(value)]


def kind_from(number: item_pb2.ItemKind.ValueType) -> ItemKind:
    """The kind of item."""
    return _KIND_FROM.get(number, ItemKind.UNKNOWN)


def role_to(value: ApiKeyRole) -> admin_pb2.ApiKeyRole.ValueType:
    """Raises ValueError for UNKNOWN."""
    return _ROLE[_known(value)]


def role_from(number: admin_pb2.ApiKeyRole.ValueType) -> ApiKeyRole:
    """The role."""
    return _ROLE_FROM.get(number, ApiKeyRole.UNKNOWN)


def conversation_order_to(value: ConversationOrder) -> conversation_service_pb2.ConversationOrder.ValueType:
    """The order of conversations."""
    return _CONVERSATION_ORDER[value]


def item_order_to(value: ItemOrder) -> item_pb2.ItemOrder.ValueType:
    """The order of items."""
    return _ITEM_ORDER[value]


E = TypeVar("E", ConversationMemory, ItemKind, ApiKeyRole)


def _known(value: E) -> E:
    if value.name == "UNKNOWN":
        raise ValueError(f"{type(value).__name__}.UNKNOWN cannot be sent")
    return value
