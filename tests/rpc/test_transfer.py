"""Export and import through the real client and server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import sage_client
from sage_client import AsyncSageClient, ExportChunk, ItemKind, NewItem
from support.server import RunningServer


async def fill(client: AsyncSageClient) -> None:
    first = await client.conversations.create("Garden", metadata={"colour": "green"})
    await client.conversations.append(
        first.id,
        [
            NewItem.user("When do I sow beans? ☀️\nAnd peas?"),
            NewItem(ItemKind.TOOL_CALL, "", tool=sage_client.ToolInvocation("c", "look", "{}")),
            NewItem(ItemKind.ASSISTANT, "x" * 90_000, hidden=True),
        ],
    )
    second = await client.conversations.create("Kitchen", private=True)
    items = [NewItem.user(f"line {n}") for n in range(500)]
    for _ in range(3):
        await client.conversations.append(second.id, items)
    gone = await client.conversations.create("Gone")
    await client.conversations.append(gone.id, [NewItem.user("old")])
    await client.conversations.delete(gone.id)


async def contents(client: AsyncSageClient) -> list[object]:
    found: list[object] = []
    for deleted in (False, True):
        async for c in client.conversations.list(deleted_only=deleted):
            items = [i async for i in client.conversations.items(c.id, show_hidden=True, page_size=200)]
            same = [(i.id, i.seq, i.kind, i.text, i.author, i.create_time, i.hidden, i.tool) for i in items]
            found.append((c.id, c.title, dict(c.metadata), c.private, c.memory, c.create_time, same))
            assert c.message_count == len(items)
    return found


async def test_what_is_exported_can_be_imported_elsewhere_and_again(
    server: RunningServer, client: AsyncSageClient, tmp_path: Path
) -> None:
    await fill(client)
    file = tmp_path / "export.jsonl"
    done = await client.conversations.export_to(file, show_deleted=True)
    assert (done.conversations, done.items) == (3, 1504)
    async with sage_client.connect_async(server.address, user="ada") as other:
        imported = await other.conversations.import_(file)
        assert (imported.conversations_created, imported.items_created) == (3, 1504)
        assert await contents(other) == await contents(client)
        again = await other.conversations.import_(file)
        assert (again.conversations_skipped, again.items_skipped) == (3, 1504)
        assert (again.conversations_created, again.items_created) == (0, 0)
        assert await contents(other) == await contents(client)


async def test_an_export_shows_its_progress_and_ends_with_done(client: AsyncSageClient) -> None:
    await fill(client)
    events = [event async for event in client.conversations.export()]
    assert isinstance(events[-1], sage_client.ExportDone)
    assert events[-1].conversations == 2
    progress = [event for event in events if isinstance(event, sage_client.ExportProgress)]
    assert progress
    assert progress[-1].total_conversations == 2
    chunks = [event for event in events if isinstance(event, sage_client.ExportChunk)]
    assert max(len(chunk.jsonl) for chunk in chunks) < 1024 * 1024
    lines = b"".join(e.jsonl for e in events if isinstance(e, sage_client.ExportChunk)).splitlines()
    assert [json.loads(line)["type"] for line in lines].count("conversation") == 2


async def test_a_bad_line_is_named_and_nothing_is_stored(client: AsyncSageClient) -> None:
    good = {
        "type": "conversation",
        "id": "0193e2a4-7b1c-7c3a-9e58-0123456789ab",
        "create_time": "2024-01-01T00:00:00Z",
    }
    orphan = {
        "type": "item",
        "id": good["id"],
        "conversation_id": "0193e2a4-7b1c-7c3a-9e58-0123456789ff",
        "kind": "user",
    }
    foreign = (b"{", b"[]", b'{"type": "song"}')
    for bad in (
        *foreign,
        json.dumps(orphan).encode(),
        json.dumps(good | {"id": 7}).encode(),
        json.dumps(good | {"create_time": "9999-01-01T00:00:00Z"}).encode(),
    ):
        with pytest.raises(sage_client.InvalidArgument) as refused:
            await client.conversations.import_(json.dumps(good).encode() + b"\n" + bad + b"\n")
        assert "line 2" in str(refused.value)
        assert refused.value.field_violations[0].field == "jsonl"
        assert ("line 2 is not a line of an export" in str(refused.value)) is (bad in foreign)
        assert "song" not in str(refused.value)
    assert [c async for c in client.conversations.list()] == []


async def test_conversations_without_items_come_in_pieces_as_well(client: AsyncSageClient) -> None:
    """However many there are: no more than a piece is held at a time."""
    large = {f"{n:064}": "x" * 512 for n in range(32)}
    for n in range(40):
        await client.conversations.create(f"Empty {n}", metadata=large)
    chunks = [event.jsonl async for event in client.conversations.export() if isinstance(event, ExportChunk)]
    assert len(chunks) > 2
    assert max(map(len, chunks)) < 300_000
    assert b"".join(chunks).count(b"\n") == 40
