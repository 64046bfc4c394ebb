"""The command line while its server goes away and comes back."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from typing import Any

import sage_client
from support.agents import answer, model_settings
from support.cli import Cli, ended
from support.provider import FakeProvider, chat_reply, hang
from support.server import running_server


def free_address() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


async def test_events_go_on_after_a_restart_without_a_gap_or_a_repeat(dsn: str) -> None:
    address = free_address()
    async with FakeProvider.running() as provider:
        settings = model_settings(provider, listen=address)
        provider.script_chat(chat_reply(answer("One.")), chat_reply(answer("Two.")))
        process = None
        async with sage_client.connect_async(address, user="maria") as client:
            for said in ("One.", "Two."):
                async with running_server(dsn, **settings):
                    await client.agent("main").enable()
                    if process is None:
                        process = await Cli(address, "maria").start("events", "--after", "0", "--json")
                    assert await client.agent("main").chat("Go on").text() == said
                    seen = await until_done(process)
                    assert [event["event"] for event in seen] == ["accepted", "typing", "message", "done"]
                    assert seen[2]["item"]["text"] == said
        assert process is not None
        process.send_signal(signal.SIGINT)
        told = await ended(process)
        assert (told.code, told.out, told.err) == (130, "", "")


async def until_done(process: asyncio.subprocess.Process) -> list[dict[str, Any]]:
    assert process.stdout is not None
    seen: list[dict[str, Any]] = []
    while not seen or seen[-1]["event"] != "done":
        seen.append(json.loads(await process.stdout.readline()))
    return seen


async def test_a_second_ctrl_c_leaves_a_turn_whose_server_is_gone(dsn: str) -> None:
    async with FakeProvider.running() as provider:
        provider.script_chat(hang)
        async with running_server(dsn, **model_settings(provider)) as server:
            process = await Cli(server.address, "maria").start("chat", "Think for long")
            await provider.asked.wait()
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while b"Ctrl-C again leaves" not in await process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        told = await ended(process)
        assert told.code == 130
        assert "Traceback" not in told.err
