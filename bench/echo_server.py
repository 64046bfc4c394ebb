"""A bare grpc.aio server that answers every call with as many bytes as it is told to. The limit of what a
gRPC server in Python can do: it parses nothing, knows nobody and asks no database.

python -m bench.echo_server <bytes of an answer>
"""

from __future__ import annotations

import asyncio
import signal
import sys
from typing import Any

import grpc
import uvloop


class _Echo(grpc.GenericRpcHandler):
    def __init__(self, answer: bytes) -> None:
        async def echo(_request: bytes, _context: object) -> bytes:
            return answer

        self._handler: grpc.RpcMethodHandler[Any, Any] = grpc.unary_unary_rpc_method_handler(echo)

    def service(self, _details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any]:
        return self._handler


async def _serve(size: int) -> None:
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Echo(b"x" * size),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"Echo listens on 127.0.0.1:{port}", flush=True)
    await stopping.wait()
    await server.stop(1)


if __name__ == "__main__":
    uvloop.run(_serve(int(sys.argv[1])))
