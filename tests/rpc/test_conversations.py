"""ConversationService through the real client and server."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import grpc
import pytest

import sage_client
from sage_client import AsyncSageClient, ConversationMemory, ConversationOrder, ItemKind, ItemOrder, NewItem
from support.contract import BY_NAME, call
from support.server import RunningServer, running_server


async def test_a_conversation_is_read_as_it_was_created(client: AsyncSageClient) -> None:
    created = await client.conversations.create(
        "Garten 🌱", metadata={"colour": "green"}, private=True, memory=ConversationMemory.NONE
    )
    assert created.title == "Garten 🌱"
    assert created.metadata == {"colour": "green"}
    assert created.private
    assert created.memory is ConversationMemory.NONE
    assert created.message_count == 0
    assert created.last_item_time is None
    assert await client.conversations.get(created.id) == created


async def test_items_keep_their_order_kind_author_time_and_tool(client: AsyncSageClient) -> None:
    thread = await client.conversations.create()
    said = datetime(2020, 2, 29, 12, 30, tzinfo=UTC)
    tool = sage_client.ToolInvocation("call-1", "lookup", '{"word": "bean"}')
    await client.conversations.append(
        thread.id,
        [
            NewItem(ItemKind.USER, "When do I sow beans?", author="Maria", create_time=said),
            NewItem(ItemKind.TOOL_CALL, "", tool=tool),
            NewItem(ItemKind.REASONING, "quietly", hidden=True),
            NewItem(ItemKind.ASSISTANT, "In May."),
        ],
    )
    items = [item async for item in client.conversations.items(thread.id, show_hidden=True)]
    assert [item.seq for item in items] == [1, 2, 3, 4]
    assert (items[0].author, items[0].create_time) == ("Maria", said)
    assert items[1].tool == tool
    shown = [item.seq async for item in client.conversations.items(thread.id)]
    assert shown == [1, 2, 4]
    newest = [item.seq async for item in client.conversations.items(thread.id, order=ItemOrder.NEWEST_FIRST)]
    assert newest == [4, 2, 1]
    answers = client.conversations.items(thread.id, kinds=[ItemKind.ASSISTANT])
    assert [item.text async for item in answers] == ["In May."]


async def test_counts_follow_appends_and_deletions(client: AsyncSageClient) -> None:
    thread = await client.conversations.create()
    appended = await client.conversations.append(
        thread.id, [NewItem.user("one two three"), NewItem.user("four")]
    )
    grown = await client.conversations.get(thread.id)
    assert grown.message_count == 2
    assert grown.total_tokens == sum(item.token_count for item in appended) == 4
    assert grown.last_item_time == appended[-1].create_time
    assert grown.etag == thread.etag
    await client.conversations.delete_item(thread.id, appended[0].id)
    shrunk = await client.conversations.get(thread.id)
    assert (shrunk.message_count, shrunk.total_tokens) == (1, 1)
    (next_item,) = await client.conversations.append(thread.id, [NewItem.user("five")])
    assert next_item.seq == 3
    with pytest.raises(sage_client.NotFound):
        await client.conversations.delete_item(thread.id, appended[0].id)


async def test_positions_have_no_gap_under_sixteen_concurrent_writers(server: RunningServer) -> None:
    """Two replicas, eight writers each, and a deletion now and then."""
    async with (
        running_server(server.dsn) as other,
        sage_client.connect_async(server.address) as here,
        sage_client.connect_async(other.address) as there,
    ):
        thread = await here.conversations.create()

        async def write(client: AsyncSageClient, name: int) -> list[int]:
            positions = []
            for n in range(10):
                items = [NewItem.user(f"{name}/{n}/{k}") for k in range(1 + n % 3)]
                appended = await client.conversations.append(thread.id, items)
                positions += [item.seq for item in appended]
                if n == 5:
                    await client.conversations.delete_item(thread.id, appended[0].id)
            return positions

        written = await asyncio.gather(*(write(here if n % 2 else there, n) for n in range(16)))
        everything = sorted(seq for positions in written for seq in positions)
        assert everything == list(range(1, len(everything) + 1))
        counted = await there.conversations.get(thread.id)
        left = [item async for item in here.conversations.items(thread.id, page_size=200)]
        assert counted.message_count == len(left) == len(everything) - 16
        assert counted.total_tokens == sum(item.token_count for item in left)


async def test_a_request_id_creates_once_however_often_and_wherever_it_is_sent(server: RunningServer) -> None:
    async with (
        running_server(server.dsn) as other,
        sage_client.connect_async(server.address) as here,
        sage_client.connect_async(other.address) as there,
    ):
        request_id = str(uuid4())
        created = await asyncio.gather(
            *(c.conversations.create("Once", request_id=request_id) for c in (here, there, here, there, here))
        )
        assert len({conversation.id for conversation in created}) == 1
        thread = created[0]
        request_id = str(uuid4())
        items = [NewItem.user("a"), NewItem.user("b")]
        appended = await asyncio.gather(
            *(
                c.conversations.append(thread.id, items, request_id=request_id)
                for c in (here, there, here, there, here)
            )
        )
        assert all(answer == appended[0] for answer in appended)
        assert (await here.conversations.get(thread.id)).message_count == 2
        request_id = str(uuid4())
        forks = await asyncio.gather(
            *(c.conversations.fork(thread.id, request_id=request_id) for c in (here, there, here))
        )
        assert len({fork.id for fork in forks}) == 1
        assert len([c async for c in here.conversations.list()]) == 2


async def test_a_request_id_is_bound_to_its_request(client: AsyncSageClient) -> None:
    request_id = str(uuid4())
    await client.conversations.create("One", request_id=request_id)
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await client.conversations.create("Two", request_id=request_id)
    assert refused.value.reason == "REQUEST_ID_REUSED"


async def test_pages_are_complete_and_newest_first(client: AsyncSageClient) -> None:
    threads = [await client.conversations.create(str(n)) for n in range(7)]
    listed = [c.title async for c in client.conversations.list(page_size=3)]
    assert listed == ["6", "5", "4", "3", "2", "1", "0"]
    first = await client.conversations.list_page(page_size=3)
    # A page may change its size, and new conversations do not shift the ones that follow.
    await client.conversations.create("later")
    second = await client.conversations.list_page(page_size=4, page_token=first.next_page_token)
    assert [c.title for c in second.items] == ["3", "2", "1", "0"]
    assert second.next_page_token == ""
    await client.conversations.append(threads[2].id, [NewItem.user("hello")])
    active = [c.title async for c in client.conversations.list(order=ConversationOrder.ACTIVE, page_size=2)]
    assert active == ["2", "later", "6", "5", "4", "3", "1", "0"]


async def test_an_update_changes_what_it_names_and_a_stale_etag_is_refused(client: AsyncSageClient) -> None:
    thread = await client.conversations.create("Old", metadata={"a": "1"})
    renamed = await client.conversations.update(thread.id, title="New", etag=thread.etag)
    assert (renamed.title, renamed.metadata) == ("New", {"a": "1"})
    assert renamed.etag != thread.etag
    with pytest.raises(sage_client.Aborted) as refused:
        await client.conversations.update(thread.id, title="Newer", etag=thread.etag)
    assert refused.value.reason == "ETAG_MISMATCH"
    cleared = await client.conversations.update(thread.id, metadata={})
    assert (cleared.title, cleared.metadata) == ("New", {})
    with pytest.raises(sage_client.Aborted):
        await client.conversations.delete(thread.id, etag=thread.etag)


async def test_concurrent_updates_of_different_fields_are_all_kept(client: AsyncSageClient) -> None:
    thread = await client.conversations.create("Old", metadata={"a": "1"})
    await asyncio.gather(
        client.conversations.update(thread.id, title="New"),
        client.conversations.update(thread.id, metadata={"b": "2"}),
        client.conversations.update(thread.id, memory=ConversationMemory.NONE),
    )
    now = await client.conversations.get(thread.id)
    assert (now.title, now.metadata, now.memory) == ("New", {"b": "2"}, ConversationMemory.NONE)


async def test_deleted_conversations_come_back_until_then_they_take_nothing(client: AsyncSageClient) -> None:
    thread = await client.conversations.create("Gone")
    await client.conversations.append(thread.id, [NewItem.user("kept")])
    deleted = await client.conversations.delete(thread.id)
    assert deleted.delete_time is not None
    assert [c async for c in client.conversations.list()] == []
    assert [c.id async for c in client.conversations.list(deleted_only=True)] == [thread.id]
    with pytest.raises(sage_client.FailedPrecondition) as refused:
        await client.conversations.append(thread.id, [NewItem.user("lost")])
    assert refused.value.reason == "CONVERSATION_DELETED"
    with pytest.raises(sage_client.NotFound):
        await client.conversations.delete(thread.id)
    assert (await client.conversations.undelete(thread.id)).delete_time is None
    with pytest.raises(sage_client.FailedPrecondition):
        await client.conversations.undelete(thread.id)
    assert [item.text async for item in client.conversations.items(thread.id)] == ["kept"]


async def test_batch_and_total_deletion_say_what_they_did(client: AsyncSageClient) -> None:
    threads = [await client.conversations.create(str(n)) for n in range(5)]
    unknown = str(uuid4())
    result = await client.conversations.batch_delete([threads[0].id, unknown, threads[1].id, threads[0].id])
    assert (result.deleted_count, result.not_found) == (2, (unknown,))
    assert await client.conversations.delete_all() == 3
    assert await client.conversations.delete_all() == 0
    assert len([c async for c in client.conversations.list(deleted_only=True)]) == 5


async def test_a_fork_is_a_copy_of_its_own(client: AsyncSageClient) -> None:
    thread = await client.conversations.create("Original", metadata={"a": "1"}, private=True)
    texts = [f"message {n}" for n in range(1203)]
    for start in range(0, len(texts), 500):
        await client.conversations.append(
            thread.id, [NewItem.user(text) for text in texts[start : start + 500]]
        )
    whole = await client.conversations.fork(thread.id)
    assert (whole.title, whole.metadata, whole.private) == ("Original", {"a": "1"}, True)
    copied = [item.text async for item in client.conversations.items(whole.id, page_size=200)]
    assert copied == texts
    original = await client.conversations.get(thread.id)
    assert (whole.message_count, whole.total_tokens) == (original.message_count, original.total_tokens)
    part = await client.conversations.fork(thread.id, up_to_seq=2, title="Beginning")
    assert [item.text async for item in client.conversations.items(part.id)] == texts[:2]
    await client.conversations.append(part.id, [NewItem.user("another way")])
    assert (await client.conversations.get(thread.id)).message_count == 1203


async def test_retention_removes_what_was_deleted_long_ago(dsn: str) -> None:
    async with (
        running_server(dsn, deleted_days=30, inactive_days=90) as server,
        sage_client.connect_async(server.address) as client,
    ):
        deleted = await client.conversations.create("deleted")
        idle = await client.conversations.create("idle")
        busy = await client.conversations.create("busy")
        for thread in (deleted, idle, busy):
            await client.conversations.append(thread.id, [NewItem.user("text")])
        await client.conversations.delete(deleted.id)
        retention = server.application.retention
        assert await retention.run() == 0
        server.clock.advance(timedelta(days=31))
        assert await retention.run() > 0
        with pytest.raises(sage_client.NotFound):
            await client.conversations.undelete(deleted.id)
        server.clock.advance(timedelta(days=50))
        await client.conversations.append(busy.id, [NewItem.user("still here")])
        server.clock.advance(timedelta(days=20))
        await retention.run()
        assert [c.title async for c in client.conversations.list()] == ["busy"]


async def test_a_repeat_gets_the_first_answer_also_after_a_deletion(client: AsyncSageClient) -> None:
    thread = await client.conversations.create("Once")
    ids = [str(uuid4()), str(uuid4())]
    items = [NewItem.user("a")]
    first = await client.conversations.append(thread.id, items, request_id=ids[0])
    fork = await client.conversations.fork(thread.id, request_id=ids[1])
    await client.conversations.delete(thread.id)
    assert await client.conversations.append(thread.id, items, request_id=ids[0]) == first
    assert (await client.conversations.fork(thread.id, request_id=ids[1])).id == fork.id
    with pytest.raises(sage_client.InvalidArgument) as refused:
        await client.conversations.append(thread.id, [NewItem.user("b")], request_id=ids[0])
    assert refused.value.reason == "REQUEST_ID_REUSED"


async def test_retention_and_an_undeletion_never_leave_half_a_conversation(dsn: str) -> None:
    async with (
        running_server(dsn, deleted_days=30) as server,
        sage_client.connect_async(server.address) as client,
    ):
        threads = [await client.conversations.create(str(n)) for n in range(40)]
        for thread in threads:
            await client.conversations.append(thread.id, [NewItem.user("x")] * 20)
        await client.conversations.delete_all()
        server.clock.advance(timedelta(days=31))
        restored = asyncio.gather(
            *(client.conversations.undelete(thread.id) for thread in threads), return_exceptions=True
        )
        await asyncio.gather(restored, server.application.retention.run())
        kept = [answer for answer in await restored if isinstance(answer, sage_client.Conversation)]
        for thread in kept:
            items = [item async for item in client.conversations.items(thread.id)]
            assert len(items) == (await client.conversations.get(thread.id)).message_count == 20
        assert {c.id async for c in client.conversations.list()} == {thread.id for thread in kept}


async def test_closing_a_client_for_another_user_leaves_the_first_one_open(client: AsyncSageClient) -> None:
    async with client.with_options(user="ada") as other:
        await other.conversations.create("Hers")
    assert (await client.conversations.create("Mine")).title == "Mine"


@pytest.mark.parametrize("name", ["%FF", "a%0Ab", "x" * 257])
async def test_a_name_that_is_none_does_not_become_the_local_user(server: RunningServer, name: str) -> None:
    async with grpc.aio.insecure_channel(server.address) as channel:
        answer = await call(channel, BY_NAME["ListConversations"], metadata=(("x-sage-user", name),))
    assert (answer.code, answer.problem) == (grpc.StatusCode.UNAUTHENTICATED, "no_user")
