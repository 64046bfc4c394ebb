"""A context holds as many of the newest items as fit, and is counted exactly."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random
from uuid import UUID

import pytest

from sage_server.adapters.tokenizer import O200kCounter
from sage_server.domain.agents import Agent, AgentProfile, MemoryMode
from sage_server.domain.conversations import Item, ItemKind
from sage_server.engine.prompt_window import Known, Material, Older, PromptWindow, SectionKind, Window

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
NOBODY = UUID(int=0)
TOKENS = O200kCounter()


def item(number: int, text: str) -> Item:
    kind = ItemKind.USER if number % 2 else ItemKind.ASSISTANT
    at = NOW + timedelta(minutes=number)
    return Item(UUID(int=number), NOBODY, number, kind, text, "", TOKENS.count(text), at)


def material(texts: list[str], budget: int) -> Material:
    agent = Agent(
        id=NOBODY,
        conversation_id=NOBODY,
        profile=AgentProfile(name="main", max_context_tokens=budget),
        enabled=True,
        memory_mode=MemoryMode.SHARED,
        created_at=NOW,
        updated_at=NOW,
    )
    items = [item(n, text) for n, text in enumerate(texts, 1)]
    return Material(
        agent=agent,
        now=NOW,
        blocks=(),
        known=Known(0, 0),
        tools=(),
        summary=None,
        items=items,
        input=[item(len(texts) + 1, "And now?")],
        first_time=False,
    )


def kept(window: Window) -> int:
    return sum(one.entry_count for one in window.sections if one.kind is SectionKind.ITEMS)


@pytest.mark.parametrize("seed", range(10))
def test_the_newest_items_are_there_and_not_one_fewer_than_fit(seed: int) -> None:
    random = Random(seed)
    words = ["tea", " beans", "\n", '"', "\\", " Zürich", "🙂", "日本", "\u2028", "    ", "--"]
    texts = ["".join(random.choices(words, k=random.randrange(40))) for _ in range(100)]
    window = PromptWindow(TOKENS).build(material(texts, 2_500))
    assert 0 < kept(window) == 100 - window.left_out < 100
    assert window.token_count == sum(one.token_count + 2 for one in window.sections) + 16 <= 2_500
    whole = PromptWindow(TOKENS).build(material(texts, 100_000))
    assert whole.left_out == 0
    # What does not fit is estimated.
    assert window.wanted_tokens == pytest.approx(whole.token_count, rel=0.1)
    one_more = PromptWindow(TOKENS).build(material(texts[window.left_out - 1 :], 100_000))
    assert one_more.wanted_tokens > 2_500  # counted line by line, which is a little more


def test_items_that_were_not_opened_are_counted_among_those_that_are_left_out() -> None:
    given = material(["Tea."] * 10, 100_000)
    window = PromptWindow(TOKENS).build(given)
    more = PromptWindow(TOKENS).build(replace(given, older=Older(5, 500)))
    assert (window.left_out, more.left_out) == (0, 5)
    assert more.sections == window.sections
    assert more.wanted_tokens > window.wanted_tokens + 500
