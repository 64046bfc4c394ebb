"""Talking: words, steps, memory edits, commands, and Ctrl-C."""

from __future__ import annotations

import asyncio
import json
import signal

from sage_client import AsyncSageClient, TurnStatus
from support.agents import answer
from support.cli import Cli, ended
from support.provider import FakeProvider, chat_reply, error_reply, hang

REMEMBER = answer("I keep that.", calls=[("memory_append", {"label": "human", "text": "Maria sows beans"})])


async def test_the_words_go_to_stdout_and_what_happens_on_the_way_to_stderr(
    sage: Cli, provider: FakeProvider
) -> None:
    found = answer(calls=[("archival_search", {"query": "beans"}), ("archival_insert", {"text": "Peas too"})])
    wrong = answer(calls=[("no_such_tool", {})])
    provider.script_chat(
        *map(chat_reply, (REMEMBER, found, wrong, answer("Beans in May.", "Peas in April.")))
    )
    told = await sage("chat", "Remember: beans.")
    assert told.code == 0
    assert told.out == "I keep that.\nBeans in May.\nPeas in April.\n"
    assert "First use: enabling the agent main" in told.err
    assert 'memory_append  label="human"  text="Maria sows beans"' in told.err
    assert "core memory changed" in told.err
    assert "found for beans" in told.err
    assert "remembered" in told.err
    assert "no_such_tool invalid" in told.err
    assert "done 4 steps, 4 tool calls" in told.err


async def test_with_json_every_event_is_a_line(sage: Cli, provider: FakeProvider) -> None:
    provider.script_chat(chat_reply(REMEMBER), chat_reply(answer("Noted.")))
    told = await sage("chat", "Remember: beans.", "--json")
    kinds = [event["event"] for event in told.lines]
    assert kinds[0] == "accepted"
    assert kinds[-1] == "done"
    assert {"typing", "message", "tool_call", "tool_result"} <= set(kinds)
    ids = [event["event_id"] for event in told.lines]
    assert ids == sorted(ids)
    assert told.err == ""


async def test_a_failed_turn_is_told_in_a_line_and_exits_with_1(sage: Cli, provider: FakeProvider) -> None:
    provider.script_chat(error_reply(503))
    told = await sage("chat", "Hello")
    assert told.code == 1
    assert "sage: the turn failed: " in told.err
    assert "MODEL_UNAVAILABLE, turn " in told.err
    provider.script_chat(error_reply(503))
    parsed = await sage("chat", "Hello", "--json")
    assert parsed.code == 1
    assert parsed.lines[-1]["reason"] == "MODEL_UNAVAILABLE"


async def test_what_steers_a_terminal_is_not_printed(sage: Cli, provider: FakeProvider) -> None:
    provider.script_chat(chat_reply(answer("red \x1b[31malert\x07 \x9b2J[bold]not markup[/bold]\n\tend")))
    told = await sage.ok("chat", "Hello")
    assert told == "red [31malert 2J[bold]not markup[/bold]\n\tend\n"


async def test_a_message_in_a_conversation_stays_in_it(
    sage: Cli, client: AsyncSageClient, provider: FakeProvider
) -> None:
    thread = await client.conversations.create("Plans")
    provider.script_chat(chat_reply(answer("Here.")))
    assert await sage.ok("chat", "Where?", "--conversation", thread.id) == "Here.\n"
    assert [item.text async for item in client.conversations.items(thread.id)] == ["Where?", "Here."]


async def test_commands_of_a_talk_show_memory_search_and_context(sage: Cli, provider: FakeProvider) -> None:
    keep = answer(calls=[("archival_insert", {"text": "Beans are sown in May"})])
    provider.script_chat(*map(chat_reply, (REMEMBER, keep, answer("Noted."))))
    typed = "Remember: beans.\n\n/memory\n/search beans\n/context\n/help\n/quit\nnever sent\n"
    told = await sage("chat", typed=typed)
    assert told.code == 0
    assert told.out.startswith("I keep that.\nNoted.\n")
    assert "Maria sows beans" in told.out
    assert "Beans are sown in May" in told.out
    assert "instruction" in told.out
    assert "/undo" in told.out
    lines = (await sage("chat", "--json", typed="/memory\n/search beans\n/context\n/help\n")).lines
    assert [sorted(line)[0] for line in lines] == [
        "blocks",
        "candidate_count",
        "compaction_tokens",
        '"""',
    ]


async def test_a_wrong_command_is_told_and_the_talk_goes_on(sage: Cli, provider: FakeProvider) -> None:
    provider.script_chat(chat_reply(answer("Hello.")))
    told = await sage("chat", typed="/nonsense\n/search\nHi\n")
    assert told.code == 1
    assert "no command /nonsense" in told.err
    assert "/search needs words" in told.err
    assert told.out == "Hello.\n"


async def test_undo_takes_back_one_change_after_the_other(
    sage: Cli, client: AsyncSageClient, provider: FakeProvider
) -> None:
    more = answer(calls=[("memory_append", {"label": "human", "text": "and peas"})])
    provider.script_chat(*map(chat_reply, (REMEMBER, answer("One."), more, answer("Two."))))
    told = await sage("chat", typed="First\nSecond\n/undo\n/memory\n/undo\n/undo\n")
    assert told.code == 1
    assert "human is as it was at revision 2." in told.out
    assert "human is as it was at revision 1." in told.out
    assert "nothing to take back" in told.err
    human = await client.memory.blocks.get("human")
    assert human.value == ""
    restored = [one.restored_revision async for one in client.memory.blocks.revisions("human")]
    assert restored == [1, 2, 0, 0, 0]


async def test_undo_overwrites_nobody_elses_change(
    sage: Cli, client: AsyncSageClient, provider: FakeProvider
) -> None:
    provider.script_chat(chat_reply(REMEMBER), chat_reply(answer("One.")))
    process = await sage.start("chat")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(b"First\n")
    assert await process.stdout.readline() == b"I keep that.\n"
    assert await process.stdout.readline() == b"One.\n"
    await client.memory.blocks.update("human", value="Mine")
    process.stdin.write(b"/undo\n")
    process.stdin.close()
    told = await ended(process)
    assert told.code == 1
    assert "was changed since" in told.err
    assert (await client.memory.blocks.get("human")).value == "Mine"


async def test_undo_leaves_changes_of_earlier_sessions(sage: Cli, provider: FakeProvider) -> None:
    provider.script_chat(chat_reply(REMEMBER), chat_reply(answer("One.")))
    await sage.ok("chat", "First")
    assert "nothing to take back" in (await sage("chat", typed="/undo\n")).err


async def test_words_come_before_the_message_is_whole(sage: Cli, provider: FakeProvider) -> None:
    hold = asyncio.Event()
    text = answer("Beans are sown in May.")
    provider.script_chat(chat_reply(text, hold=hold, piece=len('{"messages": ["Beans are')))
    process = await sage.start("chat", "When?")
    assert process.stdout is not None
    assert await process.stdout.readexactly(9) == b"Beans are"
    hold.set()
    told = await ended(process)
    assert (told.code, told.out) == (0, " sown in May.\n")


async def test_ctrl_c_cancels_the_turn_and_exits_with_130(
    sage: Cli, client: AsyncSageClient, provider: FakeProvider
) -> None:
    provider.asked.clear()
    provider.script_chat(hang)
    process = await sage.start("chat", "Think for long")
    await provider.asked.wait()
    process.send_signal(signal.SIGINT)
    told = await ended(process)
    assert told.code == 130
    assert "cancelled by caller" in told.err
    assert "Traceback" not in told.err
    assert [turn.status async for turn in client.turns.list()] == [TurnStatus.CANCELLED]


async def test_ctrl_c_in_a_talk_cancels_only_the_turn(sage: Cli, provider: FakeProvider) -> None:
    provider.asked.clear()
    provider.script_chat(hang, chat_reply(answer("Still here.")))
    process = await sage.start("chat")
    assert process.stdin is not None
    process.stdin.write(b"Think for long\nAre you there?\n")
    process.stdin.close()
    await provider.asked.wait()
    process.send_signal(signal.SIGINT)
    told = await ended(process)
    assert told.out == "Still here.\n"
    assert told.code == 130


async def test_an_unknown_agent_is_refused_and_not_made(sage: Cli) -> None:
    told = await sage("chat", "Hello", "--agent", "nobody", "--json")
    assert told.code == 1
    assert json.loads(told.err)["error"]["reason"] == "NOT_FOUND"
    assert await sage.parsed("agents", "list") == []
