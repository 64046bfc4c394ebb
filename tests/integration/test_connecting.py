"""A database that cannot be opened: which one and why is said to who runs the server, never the password."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from sage_server.adapters.postgres.connecting import ConnectError
from sage_server.adapters.postgres.database import Database, PoolOptions
from sage_server.adapters.postgres.migrate import migrate

_NO_TLS = b"N"


@asynccontextmanager
async def refusing(code: str) -> AsyncIterator[str]:
    """A server that knows no TLS and refuses whoever comes, with Postgres's code; gives its address. Without
    a code it says nothing at all."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if code:
            await reader.readexactly(8)
            writer.write(_NO_TLS)
            await reader.read(1000)
            fields = b"".join(
                kind + text.encode() + b"\0"
                for kind, text in ((b"S", "FATAL"), (b"C", code), (b"M", "canary"))
            )
            writer.write(b"E" + struct.pack("!i", len(fields) + 5) + fields + b"\0")
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def said(dsn: str) -> str:
    """What opening says, which is what migrating says too."""
    with pytest.raises(ConnectError) as refused:
        await Database.open(dsn, PoolOptions(1, 1, 0.5, 1))
    assert "canary" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("code", "options", "cause"),
    [
        ("28P01", "", "the user or the password is refused"),
        ("28000", "", "this user is not let in from here (pg_hba.conf)"),
        ("3D000", "", "there is no such database"),
        ("53300", "", "it has no connection left"),
        ("57P03", "", "it is starting or stopping"),
        ("XX000", "", "it refuses (InternalServerError)"),
        ("28P01", "?sslmode=require", "TLS: it has none"),
        ("", "", "no answer in time"),
    ],
)
async def test_a_server_that_refuses(code: str, options: str, cause: str) -> None:
    async with refusing(code) as address:
        dsn = f"postgresql://maria:canary@{address}/garden{options}"
        assert await said(dsn) == f"the database garden at {address} cannot be opened: {cause}"


@pytest.mark.parametrize(
    ("rest", "place", "cause"),
    [
        ("canary@127.0.0.1:1/x", "the database x at 127.0.0.1:1", "the connection is refused"),
        ("canary@127.0.0.1:1", "the database at 127.0.0.1:1", "the connection is refused"),
        ("canary@host.invalid/x", "the database x at host.invalid", "the name of the host is not found"),
        ("canary@/x?host=/nowhere", "the database x at /nowhere", "there is no such socket"),
        ("1/canary@127.0.0.1:1/x", "the database", "the name of the host is not found"),
    ],
)
async def test_a_place_where_there_is_none(rest: str, place: str, cause: str) -> None:
    if "/canary" in rest:
        rest = f"{rest}?host=host.invalid"
    assert await said(f"postgresql://maria:{rest}") == f"{place} cannot be opened: {cause}"


@pytest.mark.parametrize("password", ["can/ary", "canary#1", "canary[1", "1:canary/"])
async def test_a_password_that_is_not_encoded_is_not_repeated(password: str) -> None:
    assert "percent-encoded" in await said(f"postgresql://maria:{password}@127.0.0.1:1/x")


async def test_a_database_that_a_real_server_does_not_have(dsn: str) -> None:
    with pytest.raises(ConnectError, match=r"^the database missing at .* there is no such database$"):
        await migrate(re.sub(r"/\w+\?", "/missing?", dsn, count=1))
