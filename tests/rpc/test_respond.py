"""Turns in threads: who answers, and who said what."""

from __future__ import annotations

import json

import pytest

import sage_client
from sage_client import (
    AsyncSageClient,
    Conversation,
    HandoffCause,
    ItemKind,
    NewItem,
    TurnAccepted,
    TurnDone,
    TurnEvent,
    TurnHandoff,
    TurnMessage,
    TurnOrigin,
    TurnTyping,
)
from support.agents import Stage, answer, heard, only, prompt_of, stage
from support.memory import indexed, results
from support.provider import ProviderRequest, Step, chat_reply, error_reply


async def with_scout(s: Stage) -> tuple[Conversation, dict[str, str]]:
    """A thread, and the names of agents by their ids."""
    await s.client.agents.create("scout", description="Finds sources.")
    thread = await s.client.conversations.create("Garden")
    return thread, {agent.id: agent.name async for agent in s.client.agents.list()}


async def respond(s: Stage, thread: Conversation, text: str, *steps: Step | str) -> list[TurnEvent]:
    s.provider.script_chat(*(chat_reply(step) if isinstance(step, str) else step for step in steps))
    return await heard(s.client.conversations.continue_(thread.id).respond(text))


def is_routing(request: ProviderRequest) -> bool:
    return "YES, NO or UNSURE" in prompt_of(request)[0]


async def speakers(client: AsyncSageClient, thread: Conversation, names: dict[str, str]) -> list[str]:
    items = client.conversations.items(thread.id, kinds=[ItemKind.ASSISTANT])
    return [names[item.agent_id] async for item in items]


async def test_the_main_agent_answers_in_a_thread(dsn: str) -> None:
    async with stage(dsn) as s:
        thread, names = await with_scout(s)
        events = await respond(s, thread, "Hello.", answer("Yes?"))
        assert [type(event) for event in events] == [TurnAccepted, TurnTyping, TurnMessage, TurnDone]
        assert {names[event.agent_id] for event in events} == {"main"}
        turn = await s.client.turns.get(events[0].turn_id)
        assert (turn.origin, turn.conversation_id) == (TurnOrigin.RESPOND, thread.id)
        assert [item async for item in s.client.agent("main").items()] == []


async def test_an_agent_that_the_message_names_answers(dsn: str) -> None:
    async with stage(dsn) as s:
        thread, names = await with_scout(s)
        events = await respond(s, thread, "@scout find beans", answer("Found."))
        (handoff,) = only(events, TurnHandoff)
        assert (handoff.cause, handoff.to_agent) == (HandoffCause.MENTION, "scout")
        assert (names[handoff.from_agent_id], names[handoff.to_agent_id]) == ("main", "scout")
        accepted = events[0]
        assert isinstance(accepted, TurnAccepted)
        assert (accepted.agent, names[events[-1].agent_id]) == ("scout", "scout")
        assert names[(await respond(s, thread, "@main hello", answer("Yes?")))[-1].agent_id] == "main"


@pytest.mark.parametrize("text", ["@nobody find beans", "mail me @scout", "@scouting", "@ scout"])
async def test_a_name_that_is_no_agents_at_the_beginning_is_no_name(dsn: str, text: str) -> None:
    async with stage(dsn, embedding="hash") as s:
        thread, names = await with_scout(s)
        events = await respond(s, thread, text, answer("Hm."))
        assert (names[events[-1].agent_id], only(events, TurnHandoff)) == ("main", [])
        await respond(s, thread, "@scout find beans", answer("Found."))
        events = await respond(s, thread, text, "YES", answer("Hm."))
        assert only(events, TurnHandoff)[0].cause is HandoffCause.CONTINUITY


@pytest.mark.parametrize(
    ("said", "who"),
    [("YES", "scout"), ("Yes.", "scout"), ("NO", "main"), ("UNSURE", "main"), ("I think YES", "main")],
)
async def test_who_answered_last_goes_on_only_with_a_yes(dsn: str, said: str, who: str) -> None:
    async with stage(dsn) as s:
        thread, names = await with_scout(s)
        await respond(s, thread, "@scout find beans", answer("Found."))
        events = await respond(s, thread, "And peas?", said, answer("Well."))
        (handoff,) = only(events, TurnHandoff)
        cause = HandoffCause.CONTINUITY if who == "scout" else HandoffCause.FALLBACK
        assert (handoff.cause, handoff.to_agent) == (cause, who)
        assert names[events[-1].agent_id] == who
        assert (await s.client.turns.get(events[0].turn_id)).agent == who
        assert await speakers(s.client, thread, names) == ["scout", who]
        (asked,) = [request for request in s.provider.chats if is_routing(request)]
        assert [json.loads(line).get("text") for line in prompt_of(asked)[1].splitlines()[1:]] == [
            "@scout find beans",
            "Found.",
            "And peas?",
        ]


async def test_a_router_that_fails_leaves_it_to_the_main_agent(dsn: str) -> None:
    async with stage(dsn) as s:
        thread, names = await with_scout(s)
        await respond(s, thread, "@scout find beans", answer("Found."))
        events = await respond(s, thread, "And peas?", error_reply(500), answer("Well."))
        assert names[events[-1].agent_id] == "main"
        assert only(events, TurnHandoff)[0].cause is HandoffCause.FALLBACK


async def test_after_the_main_agent_nobody_is_asked_and_a_disabled_agent_does_not_go_on(dsn: str) -> None:
    async with stage(dsn) as s:
        thread, names = await with_scout(s)
        await respond(s, thread, "Hello.", answer("Yes?"))
        assert names[(await respond(s, thread, "More.", answer("Well.")))[-1].agent_id] == "main"
        await respond(s, thread, "@scout find beans", answer("Found."))
        await s.client.agents.update("scout", enabled=False)
        assert names[(await respond(s, thread, "And peas?", answer("Hm.")))[-1].agent_id] == "main"
        with pytest.raises(sage_client.FailedPrecondition) as disabled:
            await heard(s.client.conversations.continue_(thread.id).respond("@scout find peas"))
        assert disabled.value.reason == "AGENT_DISABLED"


async def test_the_model_sees_who_said_what_and_search_finds_it_by_author(dsn: str) -> None:
    async with stage(dsn) as s:
        thread, _ = await with_scout(s)
        await s.client.conversations.append(thread.id, [NewItem.user("I like peas.", author="Anna")])
        await respond(s, thread, "@scout find beans", answer("Found beans."))
        s.provider.script_chat(chat_reply("NO"), chat_reply(answer("Noted.")))
        chat = s.client.conversations.continue_(thread.id).respond("I like carrots.", author="Ben")
        events = await heard(chat)
        accepted = events[0]
        assert isinstance(accepted, TurnAccepted)
        assert accepted.input is not None
        assert accepted.input.author == "Ben"
        lines = [
            json.loads(line)
            for line in prompt_of(s.provider.chats[-1])[1].splitlines()
            if line.startswith("{")
        ]
        told = [(line.get("author"), line.get("agent"), line["text"]) for line in lines]
        assert told == [
            ("Anna", None, "I like peas."),
            (None, None, "@scout find beans"),
            (None, "scout", "Found beans."),
            ("Ben", None, "I like carrots."),
        ]
        await indexed(s.client)
        best = (await results(s.client, "carrots"))[0].memory
        assert (best.text, best.provenance.author) == ("I like carrots.", "Ben")


async def test_a_deleted_thread_takes_no_message(dsn: str) -> None:
    async with stage(dsn) as s:
        thread, _ = await with_scout(s)
        await s.client.conversations.delete(thread.id)
        with pytest.raises(sage_client.FailedPrecondition) as deleted:
            await heard(s.client.conversations.continue_(thread.id).respond("Hello."))
        assert deleted.value.reason == "CONVERSATION_DELETED"


async def test_a_thread_is_an_object_that_talks_remembers_copies_and_goes(dsn: str) -> None:
    async with stage(dsn) as s:
        thread = await s.client.conversations.new("Garden", metadata={"bed": "1"}, private=True)
        s.provider.script_chat(chat_reply(answer("Hello.")), chat_reply(answer("Beans.")))
        assert await thread.respond("Hi.").text() == "Hello."
        again = s.client.conversations.continue_(thread.id)
        assert await again.respond("What did I sow?").text() == "Beans."
        await again.append([NewItem.user("And peas.")])
        texts = [item.text async for item in thread.items()]
        assert texts == ["Hi.", "Hello.", "What did I sow?", "Beans.", "And peas."]
        renamed = await thread.update(title="Bed")
        assert (renamed.title, renamed.metadata, renamed.private) == ("Bed", {"bed": "1"}, True)
        copy = await thread.fork(up_to_seq=2, title="Copy")
        assert [item.text async for item in copy.items()] == texts[:2]
        assert (await copy.get()).title == "Copy"
        s.provider.script_chat(chat_reply("They spoke of beans."))
        summary = (await thread.summarize(keep_newest=1)).summary
        assert summary is not None
        assert summary.text == "They spoke of beans."
        assert (await thread.delete()).delete_time is not None
        assert [found.id async for found in s.client.conversations.list()] == [copy.id]
