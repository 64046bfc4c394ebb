"""Conversations and items as messages. The domain's enum numbers are the contract's; a test says so."""

from __future__ import annotations

from sage.v1 import agent_service_pb2, conversation_pb2, conversation_service_pb2, item_pb2
from sage_server.domain.conversations import (
    AppendedItem,
    Conversation,
    ConversationChange,
    ConversationMemory,
    ConversationOrder,
    Item,
    ItemFilter,
    ItemKind,
    NewItem,
    ToolInvocation,
)
from sage_server.domain.errors import SageError, invalid
from sage_server.domain.summaries import Summary
from sage_server.rpc.mapping import from_timestamp, to_timestamp


def to_conversation(conversation: Conversation) -> conversation_pb2.Conversation:
    """A conversation for a caller."""
    return conversation_pb2.Conversation(
        id=str(conversation.id),
        title=conversation.title,
        metadata=conversation.metadata,
        private=conversation.private,
        memory=conversation_pb2.ConversationMemory.ValueType(conversation.memory),
        message_count=conversation.message_count,
        total_tokens=conversation.total_tokens,
        last_item_time=to_timestamp(conversation.last_item_at),
        create_time=to_timestamp(conversation.created_at),
        update_time=to_timestamp(conversation.updated_at),
        delete_time=to_timestamp(conversation.deleted_at),
        etag=conversation.etag,
        summary=conversation.summary,
        summarized_count=conversation.summarized_count,
    )


def to_summary(summary: Summary) -> conversation_pb2.ConversationSummary:
    """A summary for a caller."""
    return conversation_pb2.ConversationSummary(
        id=str(summary.id),
        conversation_id=str(summary.conversation_id),
        from_seq=summary.from_seq,
        to_seq=summary.to_seq,
        message_count=summary.message_count,
        text=summary.text,
        token_count=summary.token_count,
        previous_id="" if summary.previous_id is None else str(summary.previous_id),
        create_time=to_timestamp(summary.created_at),
    )


def to_item(item: Item) -> item_pb2.Item:
    """An item for a caller."""
    tool = item.tool
    return item_pb2.Item(
        id=str(item.id),
        conversation_id=str(item.conversation_id),
        seq=item.seq,
        kind=item_pb2.ItemKind.ValueType(item.kind),
        text=item.text,
        author=item.author,
        create_time=to_timestamp(item.created_at),
        token_count=item.token_count,
        turn_id="" if item.turn_id is None else str(item.turn_id),
        step=item.step,
        agent_id="" if item.agent_id is None else str(item.agent_id),
        hidden=item.hidden,
        tool=None
        if tool is None
        else item_pb2.ToolInvocation(
            call_id=tool.call_id, name=tool.name, arguments_json=tool.arguments_json
        ),
    )


def to_appended(item: AppendedItem) -> conversation_service_pb2.AppendedItem:
    """What was decided about an item."""
    return conversation_service_pb2.AppendedItem(
        id=str(item.id),
        seq=item.seq,
        token_count=item.token_count,
        create_time=to_timestamp(item.created_at),
    )


def from_new_items(request: conversation_service_pb2.AppendItemsRequest) -> list[NewItem]:
    """The items to append; a bad one is named by its index."""
    items = []
    for index, item in enumerate(request.items):
        try:
            created_at = from_timestamp(item, "create_time")
        except SageError:
            raise invalid(f"items[{index}].create_time", "must be a valid time") from None
        tool = item.tool if item.HasField("tool") else None
        items.append(
            NewItem(
                kind=ItemKind(item.kind),
                text=item.text,
                author=item.author,
                created_at=created_at,
                hidden=item.hidden,
                tool=tool and ToolInvocation(tool.call_id, tool.name, tool.arguments_json),
            )
        )
    return items


def from_memory(memory: int) -> ConversationMemory:
    """Unspecified means what the agent knows."""
    return ConversationMemory(memory) if memory else ConversationMemory.AGENT


def from_order(order: int) -> ConversationOrder:
    """Unspecified means by creation."""
    return ConversationOrder(order) if order else ConversationOrder.CREATED


def from_change(request: conversation_service_pb2.UpdateConversationRequest) -> ConversationChange:
    """What the mask names. The contract's constraint lets `title.x` pass for a part of `title`."""
    named = set(request.update_mask.paths)
    return ConversationChange(
        title=request.title if "title" in named else None,
        metadata=dict(request.metadata) if "metadata" in named else None,
        memory=from_memory(request.memory) if "memory" in named else None,
    )


def from_filter(
    request: conversation_service_pb2.ListItemsRequest | agent_service_pb2.ListAgentItemsRequest,
) -> ItemFilter:
    """Which items to list."""
    return ItemFilter(
        kinds=frozenset(ItemKind(kind) for kind in request.kinds),
        show_hidden=request.show_hidden,
        newest_first=request.order == item_pb2.ITEM_ORDER_NEWEST_FIRST,
    )
