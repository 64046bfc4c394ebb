"""How it looks: help with examples, lines that fit, no colour where nobody sees it."""

from __future__ import annotations

import os
import pty
import re
import runpy
import shlex
from pathlib import Path

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from sage_client import AsyncSageClient, NewItem
from sage_client.cli.app import app
from sage_client.cli.words import Wrapped
from support.agents import answer
from support.cli import Cli
from support.provider import FakeProvider, chat_reply

ROOT = Path(__file__).resolve().parents[2]
LONG = "Beans are sown in May, after the last frost, in rows that are far enough apart. " * 6
WIDE_LETTERS = "豆は五月に蒔く。" * 30


def commands() -> list[tuple[str, ...]]:
    """Every command and group, by the words that call it."""

    def below(command: object, words: tuple[str, ...]) -> list[tuple[str, ...]]:
        found = [words]
        if isinstance(command, TyperGroup):
            for name, one in command.commands.items():
                found += below(one, (*words, name))
        return found

    return below(get_command(app), ())


def test_the_readme_has_the_commands_of_its_picture_to_be_copied() -> None:
    recorded = runpy.run_path(str(ROOT / "scripts" / "record_session.py"))
    readme = (ROOT / "README.md").read_text()
    file = f"printf {shlex.quote(recorded['BOOKLET'])} > beans.md".replace("\n", r"\n")
    assert "\n".join([file, "", *recorded["SESSION"], "```"]) in readme


@pytest.mark.parametrize("words", commands(), ids=" ".join)
@pytest.mark.parametrize("width", [80, 120])
async def test_every_command_has_help_with_an_example_that_fits(words: tuple[str, ...], width: int) -> None:
    told = await Cli("127.0.0.1:1", "maria", width)(*words, "--help")
    assert told.code == 0
    example = "Example: " + " ".join(("sage", *words))
    assert example in told.out
    assert "<bool>" not in told.out
    assert too_long(told.out, width) == []


def too_long(text: str, width: int) -> list[str]:
    return [line for line in text.splitlines() if len(line) > width]


async def fill(sage: Cli, client: AsyncSageClient, folder: Path) -> str:
    """Long texts everywhere. The id of a conversation."""
    await client.agent("main").enable(description=LONG)
    await client.agents.create("a" * 60, description=LONG)
    await client.memory.insert(LONG, tags=["garden" * 8])
    await client.memory.insert(WIDE_LETTERS)
    await client.memory.blocks.update("human", value=LONG)
    file = folder / ("very-long-name-" * 8 + ".md")
    file.write_text(LONG)
    await sage.ok("docs", "add", str(file))
    thread = await client.conversations.create(LONG[:200])
    await client.conversations.append(
        thread.id, [NewItem.user(LONG, author="Anna"), NewItem.user(WIDE_LETTERS)]
    )
    return thread.id


@pytest.mark.parametrize("width", [80, 120])
async def test_no_line_is_longer_than_the_terminal(
    sage: Cli, client: AsyncSageClient, provider: FakeProvider, tmp_path: Path, width: int
) -> None:
    thread = await fill(sage, client, tmp_path)
    sized = Cli(sage.address, sage.user, width)
    calls = [("memory_append", {"label": "human", "text": LONG}), ("archival_search", {"query": LONG})]
    provider.script_chat(chat_reply(answer(LONG, calls=calls)), chat_reply(answer("Well.")))
    told = [await sized("chat", LONG)]
    for command in (
        *(("memory", "list"), ("memory", "show", "human"), ("memory", "history", "human")),
        *(("memory", "search", "beans"), ("docs", "list"), ("conversations", "list")),
        *(("conversations", "show", thread), ("agents", "list"), ("agents", "show"), ("agents", "tools")),
        *(("agents", "find", "sow beans"), ("context", "--full"), ("usage", "--days", "3650")),
        ("events", "--after", "0", "--limit", "8"),
    ):
        result = await sized(*command)
        assert result.code == 0, result
        assert result.out
        assert too_long(result.out, width) == [], command
        told.append(result)
    # What was said is not cut, and not wrapped where it may be a file: the rest fits.
    assert told[0].out == LONG + "\nWell.\n"
    assert too_long(told[0].err, width) == []
    assert not any("\x1b" in result.out + result.err for result in told)


async def test_in_80_columns_ids_are_whole_and_long_texts_have_two_lines_and_an_ellipsis(
    sage: Cli, client: AsyncSageClient, tmp_path: Path
) -> None:
    thread = await fill(sage, client, tmp_path)
    assert thread in await sage.ok("conversations", "list")
    for family, command in (("memories", ("memory", "list")), (None, ("docs", "list"))):
        parsed = await sage.parsed(*command)
        table = await sage.ok(*command)
        lines = table.splitlines()
        rows = [number for number, line in enumerate(lines) if line[2:3] == ":"]
        assert len(rows) == len(parsed[family] if family else parsed)
        assert all(one["id"] in table for one in (parsed[family] if family else parsed))
        assert all(lines[row + 1].endswith("…") for row in rows)


@pytest.mark.parametrize(("environment", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
async def test_a_terminal_gets_colours_unless_it_wants_none(
    sage: Cli, environment: dict[str, str], coloured: bool
) -> None:
    await sage.ok("memory", "add", "Beans", "--tag", "garden")
    shown = await in_terminal(sage, environment, "memory", "search", "beans")
    assert "Beans" in shown
    assert bool(re.search(r"\x1b\[[0-9;]*3[0-9]m", shown)) is coloured


async def in_terminal(sage: Cli, environment: dict[str, str], *arguments: str) -> str:
    """What a command shows in a terminal."""
    ours, theirs = pty.openpty()
    own = {"TERM": "xterm-256color"} | environment
    started = Cli(sage.address, sage.user, sage.width, own)
    process = await started.start(*arguments, terminal=theirs)
    os.close(theirs)
    await process.wait()
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    return shown


def test_streamed_words_break_between_words_at_the_width() -> None:
    written: list[str] = []
    wrapped = Wrapped(written.append, 20)
    text = "Beans are sown in May,\nafter the last frost. 豆は五月 " + "x" * 30 + " end"
    for letter in text:
        wrapped.add(letter)
    wrapped.end()
    shown = "".join(written)
    assert shown == "Beans are sown in\nMay,\nafter the last\nfrost. 豆は五月\n" + "x" * 30 + "\nend\n"


async def test_names_are_faint_and_their_values_are_not(sage: Cli, client: AsyncSageClient) -> None:
    await client.agent("main").enable()
    shown = await in_terminal(sage, {}, "agents", "show", "main")
    assert re.search(r"\x1b\[2mmemory +\x1b\[0mshared", shown)
