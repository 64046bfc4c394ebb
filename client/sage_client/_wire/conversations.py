"""Conversations and their items."""

from __future__ import annotations

from collections.abc import Mapping

from sage.v1 import conversation_pb2, conversation_service_pb2, item_pb2
from sage_client._wire.enums import kind_from, kind_to, memory_from, memory_to
from sage_client._wire.times import time_from, time_to
from sage_client.models.conversations import Conversation, ConversationMemory, ConversationSummary, Summarized
from sage_client.models.items import AppendedItem, Item, NewItem, ToolInvocation
from sage_client.unset import Unset


def conversation_from(message: conversation_pb2.Conversation) -> Conversation:
    """A conversation."""
    return Conversation(
        id=message.id,
        title=message.title,
        metadata=dict(message.metadata),
        private=message.private,
        memory=memory_from(message.memory),
        message_count=message.message_count,
        total_tokens=message.total_tokens,
        last_item_time=time_from(message.last_item_time) if message.HasField("last_item_time") else None,
        create_time=time_from(message.create_time),
        update_time=time_from(message.update_time),
        delete_time=time_from(message.delete_time) if message.HasField("delete_time") else None,
        etag=message.etag,
        summary=message.summary,
        summarized_count=message.summarized_count,
    )


def summary_from(message: conversation_pb2.ConversationSummary) -> ConversationSummary:
    """A summary."""
    return ConversationSummary(
        id=message.id,
        conversation_id=message.conversation_id,
        from_seq=message.from_seq,
        to_seq=message.to_seq,
        message_count=message.message_count,
        text=message.text,
        token_count=message.token_count,
        previous_id=message.previous_id,
        create_time=time_from(message.create_time),
    )


def summarized_from(message: conversation_service_pb2.SummarizeConversationResponse) -> Summarized:
    """What became of a request to summarise."""
    return Summarized(
        summary=summary_from(message.summary) if message.HasField("summary") else None,
        applied=message.applied,
    )


def item_from(message: item_pb2.Item) -> Item:
    """An item."""
    return Item(
        id=message.id,
        conversation_id=message.conversation_id,
        seq=message.seq,
        kind=kind_from(message.kind),
        text=message.text,
        author=message.author,
        create_time=time_from(message.create_time),
        token_count=message.token_count,
        turn_id=message.turn_id,
        step=message.step,
        agent_id=message.agent_id,
        hidden=message.hidden,
        tool=_tool_from(message.tool) if message.HasField("tool") else None,
    )


def appended_from(message: conversation_service_pb2.AppendedItem) -> AppendedItem:
    """What the server decided about an item."""
    return AppendedItem(
        id=message.id,
        seq=message.seq,
        token_count=message.token_count,
        create_time=time_from(message.create_time),
    )


def new_item_to(item: NewItem) -> conversation_service_pb2.NewItem:
    """An item to append."""
    return conversation_service_pb2.NewItem(
        kind=kind_to(item.kind),
        text=item.text,
        author=item.author,
        create_time=time_to(item.create_time),
        hidden=item.hidden,
        tool=_tool_to(item.tool) if item.tool else None,
    )


def update_to(
    conversation_id: str,
    *,
    title: str | Unset,
    metadata: Mapping[str, str] | Unset,
    memory: ConversationMemory | Unset,
    etag: str,
) -> conversation_service_pb2.UpdateConversationRequest:
    """A change of what is given: the mask names that and nothing else."""
    request = conversation_service_pb2.UpdateConversationRequest(conversation_id=conversation_id, etag=etag)
    request.update_mask.SetInParent()
    if not isinstance(title, Unset):
        request.title = title
        request.update_mask.paths.append("title")
    if not isinstance(metadata, Unset):
        request.metadata.update(metadata)
        request.update_mask.paths.append("metadata")
    if not isinstance(memory, Unset):
        request.memory = memory_to(memory)
        request.update_mask.paths.append("memory")
    return request


def _tool_from(message: item_pb2.ToolInvocation) -> ToolInvocation:
    return ToolInvocation(call_id=message.call_id, name=message.name, arguments_json=message.arguments_json)


def _tool_to(tool: ToolInvocation) -> conversation_service_pb2.NewToolInvocation:
    return conversation_service_pb2.NewToolInvocation(
        call_id=tool.call_id, name=tool.name, arguments_json=tool.arguments_json
    )
