"""A model that answers at once, behind the OpenAI protocol: whatever it is asked, it says one sentence.

python -m bench.model_server
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal

import uvloop

_TEXT = json.dumps({"messages": ["The beans go out in the second week of May."], "tool_calls": []})
_USAGE = {"prompt_tokens": 900, "completion_tokens": 20, "total_tokens": 920}
_MESSAGE = {"role": "assistant", "content": _TEXT}
_BODY = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": "bench",
        "choices": [{"index": 0, "message": _MESSAGE, "finish_reason": "stop"}],
        "usage": _USAGE,
    }
).encode()
_ANSWER = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: "
    + str(len(_BODY)).encode()
    + b"\r\n\r\n"
    + _BODY
)


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            at = head.index(b"content-length:")
            await reader.readexactly(int(head[at + 15 : head.index(b"\r\n", at)]))
            writer.write(_ANSWER)
            await writer.drain()
    writer.close()


async def _run() -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    server = await asyncio.start_server(_serve, "127.0.0.1", 0, limit=2**22)
    port = server.sockets[0].getsockname()[1]
    print(f"Model listens on 127.0.0.1:{port}", flush=True)
    await stopping.wait()
    server.close()


if __name__ == "__main__":
    uvloop.run(_run())
