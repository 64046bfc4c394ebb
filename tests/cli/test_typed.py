"""What is typed or pasted into a talk, on a terminal."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import termios
from collections.abc import AsyncIterator
from select import select

import pytest

from sage_client import AsyncSageClient, ItemKind
from support.agents import answer
from support.cli import Cli
from support.provider import FakeProvider, chat_reply

MAIL = "Dear Maria,\n\nbeans are sown in May.\n/quit is no command here.\nYours\nAnna"
PASTED = f"\x1b[200~{MAIL}\x1b[201~"


class Terminal:
    """A talk on a terminal that somebody types at."""

    def __init__(self, process: asyncio.subprocess.Process, descriptor: int) -> None:
        self.process = process
        self._descriptor = descriptor
        self._shown = b""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.replace("\n", "\r").encode())

    async def until(self, text: str) -> None:
        """Wait until it shows this after all that was waited for."""
        while text.encode() not in self._shown:
            ready, _, _ = await asyncio.to_thread(select, [self._descriptor], [], [], 20)
            assert ready, self._shown
            self._shown += os.read(self._descriptor, 100_000)
        self._shown = self._shown.partition(text.encode())[2]


@pytest.fixture
async def terminal(sage: Cli, client: AsyncSageClient) -> AsyncIterator[Terminal]:
    await client.agent("main").enable()
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    sized = Cli(sage.address, sage.user, environment={"TERM": "xterm-256color"})
    process = await sized.start("chat", terminal=theirs)
    os.close(theirs)
    terminal = Terminal(process, ours)
    await terminal.until("> ")
    yield terminal
    process.kill()
    await process.wait()
    os.close(ours)


async def said(client: AsyncSageClient) -> list[str]:
    return [item.text async for item in client.agent("main").items() if item.kind is ItemKind.USER]


@pytest.mark.parametrize("paste", [PASTED + "\n", MAIL + "\n"], ids=["marked", "unmarked"])
async def test_a_paste_of_many_lines_is_one_message(
    terminal: Terminal, client: AsyncSageClient, provider: FakeProvider, paste: str
) -> None:
    provider.script_chat(chat_reply(answer("Noted.")))
    terminal.type(paste)
    await terminal.until("Noted.")
    await terminal.until("> ")
    assert await said(client) == [MAIL]


@pytest.mark.parametrize(
    "lines", [["Beans,\\", "peas\\", "and leeks."], ['"""', "Beans,", "peas", "and leeks.", '"""']]
)
async def test_a_message_of_several_lines_can_be_typed(
    terminal: Terminal, client: AsyncSageClient, provider: FakeProvider, lines: list[str]
) -> None:
    provider.script_chat(chat_reply(answer("Noted.")))
    for line in lines[:-1]:
        terminal.type(line + "\n")
        await terminal.until("… ")
    terminal.type(lines[-1] + "\n")
    await terminal.until("Noted.")
    await terminal.until("> ")
    assert await said(client) == ["Beans,\npeas\nand leeks."]


async def test_ctrl_c_drops_what_is_typed_so_far(
    terminal: Terminal, client: AsyncSageClient, provider: FakeProvider
) -> None:
    terminal.type("Beans,\\\n")
    await terminal.until("… ")
    terminal.process.send_signal(signal.SIGINT)
    await terminal.until("Ctrl-C again leaves.")
    await terminal.until("> ")
    provider.script_chat(chat_reply(answer("Hello.")))
    terminal.type("Hi\n")
    await terminal.until("Hello.")
    await terminal.until("> ")
    assert await said(client) == ["Hi"]
