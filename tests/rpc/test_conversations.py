"""ConversationService through the real client and server."""

from __future__ import annotations

import sage_client
from sage_client import NewItem
from support.server import RunningServer


async def test_a_conversation_is_created_and_read_back(server: RunningServer) -> None:
    async with sage_client.connect_async(server.address) as client:
        created = await client.conversations.create("Garden", metadata={"colour": "green"})
        assert await client.conversations.get(created.id) == created
        appended = await client.conversations.append(created.id, [NewItem.user("When do I sow beans?")])
        assert [item.seq for item in appended] == [1]
        assert [item.text async for item in client.conversations.items(created.id)] == [
            "When do I sow beans?"
        ]
        events = [event async for event in client.conversations.export()]
        assert isinstance(events[-1], sage_client.ExportDone)
        assert events[-1].items == 1
