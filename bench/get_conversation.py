"""GetConversation against a bare echo of the same size: what authentication, validation, the database and
decryption leave of a gRPC server's throughput."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import grpc

from bench.calls import Caller
from bench.environment import Environment, child
from bench.result import Result, at_least
from bench.runner import interleave, ratio_of
from sage.v1 import conversation_service_pb2 as pb

_USER = "bench-get"
_IN_FLIGHT = 32


async def run(environment: Environment) -> list[Result]:
    metadata = environment.metadata(_USER)
    create = Caller(environment.channel, "CreateConversation")
    request = pb.CreateConversationRequest(
        title="When do I sow the beans, and when the peas?",
        metadata={"app": "garden", "locale": "en-GB", "source": "bench"},
    )
    created = pb.CreateConversationResponse.FromString(await create(request.SerializeToString(), metadata))
    get = Caller(environment.channel, "GetConversation")
    wanted = pb.GetConversationRequest(conversation_id=created.conversation.id)
    size = len(await get(wanted.SerializeToString(), metadata))
    options = environment.options

    with tempfile.TemporaryDirectory(prefix="sage-bench-echo-", dir="/tmp") as folder:
        command = (sys.executable, "-m", "bench.echo_server", str(size))
        async with (
            child(command, {}, Path(folder) / "echo.log") as address,
            grpc.aio.insecure_channel(address) as channel,
        ):
            contenders = {
                "ours": get.repeating(wanted, metadata),
                "echo": Caller(channel, "GetConversation").repeating(wanted, metadata),
            }
            many = await interleave(
                contenders, in_flight=_IN_FLIGHT, seconds=options.seconds, rounds=options.rounds
            )
            alone = await interleave(
                contenders, in_flight=1, seconds=options.seconds / 2, rounds=options.rounds
            )
    ratio = ratio_of(many["ours"], many["echo"], lambda one: one.per_second)
    return [
        Result(
            "get_conversation_vs_echo",
            ratio.value,
            ratio.spread,
            at_least(0.5),
            f"{many['ours'].per_second:,.0f} calls/s",
            f"{many['echo'].per_second:,.0f} calls/s",
            [
                many["ours"].described("GetConversation"),
                many["echo"].described(f"echo of {size} bytes"),
                alone["ours"].described("GetConversation"),
                alone["echo"].described(f"echo of {size} bytes"),
                f"get_conversation_p50_ms: {alone['ours'].p50:.2f}",
            ],
        )
    ]
