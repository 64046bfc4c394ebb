"""Malformed documents and vectors: a typed error each, and nothing stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import asyncpg
import pytest

import sage_client
from sage_client import AsyncSageClient
from sage_client.models.memory import NewMemory
from sage_client.models.search import SearchQuery
from support.documents import archive, certified_pdf, encrypted_pdf, endless_pdf, nested_html, pdf
from support.server import RunningServer

Refused: TypeAlias = tuple[type[sage_client.SageError], str, dict[str, str]]
DIMENSIONS = 256
MIB = 1024 * 1024


def unreadable(media_type: str, cause: str) -> Refused:
    return (
        sage_client.InvalidArgument,
        "DOCUMENT_UNREADABLE",
        {"media_type": media_type, "cause": cause},
    )


def unsupported(detected: str) -> Refused:
    return sage_client.InvalidArgument, "DOCUMENT_TYPE_UNSUPPORTED", {"detected": detected}


def empty(media_type: str) -> Refused:
    return sage_client.InvalidArgument, "DOCUMENT_EMPTY", {"media_type": media_type}


def too_large(limit: int, unit: str) -> Refused:
    return sage_client.InvalidArgument, "DOCUMENT_TOO_LARGE", {"limit": str(limit), "unit": unit}


def many_chunks() -> bytes:
    """More than 20,000 chunks in less than ten million characters: each holds one sentence."""
    return "".join(f"{number:<6}{'word ' * 64}end. " for number in range(20_100)).encode()


INVALID = (sage_client.InvalidArgument, "INVALID_REQUEST")
DOCUMENTS: dict[str, tuple[bytes, str, Refused]] = {
    "nothing": (b"", "", (*INVALID, {"fields": "content"})),
    "unknown media type": (b"text", "image/png", (*INVALID, {"fields": "media_type"})),
    "only space": (b" \n\t \r\n", "", empty("text/plain")),
    "only a byte order mark": (b"\xef\xbb\xbf", "text/markdown", empty("text/markdown")),
    "a page without text": (b"<!doctype html><html><body> </body></html>", "", empty("text/html")),
    "scanned pages": (pdf("", ""), "", empty("application/pdf")),
    "bytes of no kind": (bytes(range(256)) * 8, "", unsupported("application/octet-stream")),
    "an archive": (archive(), "", unsupported("application/zip")),
    "an archive that says it is text": (archive(), "text/plain", unsupported("application/zip")),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(64), "", unsupported("image/png")),
    "a wrong encoding": ("Müller".encode("latin-1"), "text/plain", unreadable("text/plain", "encoding")),
    "half a character": ("Jürgen".encode()[:2], "", unreadable("text/plain", "encoding")),
    "a text that says it is a PDF": (b"text", "application/pdf", unreadable("application/pdf", "damaged")),
    "a PDF that says it is text": (pdf("text"), "text/plain", unreadable("text/plain", "encoding")),
    "a PDF that is cut off": (pdf("text")[:300], "", unreadable("application/pdf", "damaged")),
    "a PDF with a password": (
        encrypted_pdf("text", "secret"),
        "",
        unreadable("application/pdf", "encrypted"),
    ),
    "a PDF for certificates": (certified_pdf(), "", unreadable("application/pdf", "encrypted")),
    "a PDF without an end": (endless_pdf(), "", unreadable("application/pdf", "damaged")),
    "too many characters": (b"word " * 2_200_000, "", too_large(10_000_000, "characters")),
    "too many chunks": (many_chunks(), "", too_large(20_000, "chunks")),
    "more than a request may have": (
        b"word " * (37 * MIB // 5 - 100),
        "",
        (sage_client.ResourceExhausted, "REQUEST_TOO_LARGE", {"limit_bytes": str(36 * MIB)}),
    ),
    "far more than a request may have": (
        b"word " * 20 * MIB,
        "",
        (sage_client.ResourceExhausted, "REQUEST_TOO_LARGE", {}),
    ),
}


@asynccontextmanager
async def unchanged(server: RunningServer) -> AsyncIterator[None]:
    """What is in the database stays what it is."""

    async def state() -> list[Any]:
        connection = await asyncpg.connect(server.dsn)
        try:
            return [
                await connection.fetchval(f"SELECT count(*) FROM {table}")
                for table in ("documents", "memories", "requests", "pgqueuer")
            ] + await connection.fetch("SELECT * FROM heads ORDER BY user_id")
        finally:
            await connection.close()

    before = await state()
    yield
    assert await state() == before


async def check(server: RunningServer, call: Callable[[], Awaitable[Any]], refused: Refused) -> None:
    """The exact status, reason and metadata, and nothing stored."""
    error, reason, metadata = refused
    async with unchanged(server):
        with pytest.raises(sage_client.SageError) as raised:
            await call()
        assert type(raised.value) is error
        assert (raised.value.reason, dict(raised.value.metadata)) == (reason, metadata)


@pytest.mark.parametrize("kind", DOCUMENTS)
async def test_a_malformed_document_is_refused_and_nothing_is_stored(
    server: RunningServer, client: AsyncSageClient, kind: str
) -> None:
    await client.memory.documents.add(b"An older version", external_id="known")
    content, media_type, refused = DOCUMENTS[kind]

    async def add() -> None:
        await client.memory.documents.add(content, media_type=media_type, external_id="known", title="New")

    await check(server, add, refused)
    found = await client.memory.search("older version")
    assert [one.memory.text for one in found.results] == ["An older version"]


async def test_a_deeply_nested_page_is_read(client: AsyncSageClient) -> None:
    done = await client.memory.documents.add(nested_html(20_000, "At the bottom"))
    assert done.document.chunk_count == 1


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"title": "x" * 513}, "title"),
        ({"title": "a\0b"}, "title"),
        ({"external_id": "x" * 1_025}, "external_id"),
        ({"tags": [""]}, "tags[0]"),
        ({"tags": [" "]}, "tags"),
        ({"tags": ["x" * 65]}, "tags[0]"),
        ({"tags": [str(number) for number in range(33)]}, "tags"),
        ({"metadata": {"": "x"}}, "metadata[…]"),
        ({"metadata": {"x": "y" * 513}}, "metadata[…]"),
        ({"request_id": "not an id"}, "request_id"),
        ({"agent": "Not A Name"}, "agent"),
    ],
)
async def test_a_malformed_field_of_a_document_is_named(
    server: RunningServer, client: AsyncSageClient, fields: dict[str, Any], field: str
) -> None:
    await client.memory.documents.add(b"There before")
    async with unchanged(server):
        with pytest.raises(sage_client.InvalidArgument) as raised:
            await client.memory.documents.add(b"text", **fields)
        assert raised.value.reason == "INVALID_REQUEST"
        assert [violation.field for violation in raised.value.field_violations] == [field]


GOOD = [1.0] + [0.0] * (DIMENSIONS - 1)
MISMATCH = (sage_client.InvalidArgument, "EMBEDDING_DIMENSION_MISMATCH")
UNUSABLE = (sage_client.InvalidArgument, "EMBEDDING_INVALID")
OTHER_MODEL = (sage_client.FailedPrecondition, "EMBEDDING_MODEL_MISMATCH")
VECTORS: dict[str, tuple[list[float], tuple[type[sage_client.SageError], str], dict[str, str]]] = {
    "too short": ([1.0] * 3, MISMATCH, {"expected": "256", "actual": "3"}),
    "one too long": ([1.0] * 257, MISMATCH, {"expected": "256", "actual": "257"}),
    "all zeros": ([0.0] * DIMENSIONS, UNUSABLE, {}),
    "not a number": ([float("nan"), *GOOD[1:]], UNUSABLE, {}),
    "infinite": ([*GOOD[:9], float("inf"), *GOOD[10:]], UNUSABLE, {}),
    "minus infinite": ([*GOOD[:9], float("-inf"), *GOOD[10:]], UNUSABLE, {}),
    "longer than any": ([1.0] * 8_193, INVALID, {"fields": "embedding"}),
}


def second_of_two(metadata: dict[str, str]) -> dict[str, str]:
    """What the error of one request says of the second request of a batch."""
    if "fields" in metadata:
        return {"fields": f"requests[1].{metadata['fields']}"}
    return metadata | {"index": "1"}


@pytest.mark.parametrize("kind", VECTORS)
async def test_a_malformed_vector_is_refused_and_nothing_is_stored(
    server: RunningServer, client: AsyncSageClient, kind: str
) -> None:
    await client.memory.insert("There before")
    vector, (error, reason), metadata = VECTORS[kind]
    await check(server, lambda: client.memory.insert("Text", embedding=vector), (error, reason, metadata))
    in_batch = second_of_two(metadata)
    batch = [NewMemory("First"), NewMemory("Second", embedding=vector)]
    await check(server, lambda: client.memory.insert_many(batch), (error, reason, in_batch))


@pytest.mark.parametrize("kind", VECTORS)
async def test_a_malformed_query_vector_is_refused(
    server: RunningServer, client: AsyncSageClient, kind: str
) -> None:
    await client.memory.insert("There before")
    vector, (error, reason), metadata = VECTORS[kind]
    one = {name: value.replace("embedding", "query_embedding") for name, value in metadata.items()}
    await check(server, lambda: client.memory.search(embedding=vector), (error, reason, one))
    in_batch = second_of_two(one)
    queries = [SearchQuery("before"), SearchQuery(embedding=vector)]
    await check(server, lambda: client.memory.search_many(queries), (error, reason, in_batch))


async def test_a_vector_of_another_model_is_refused(server: RunningServer, client: AsyncSageClient) -> None:
    model = (await client.memory.insert("There before")).memory.embedding_model
    await check(
        server,
        lambda: client.memory.insert("Text", embedding=GOOD, embedding_model="openai/other"),
        (*OTHER_MODEL, {"expected": model}),
    )
    right = await client.memory.insert("Text", embedding=GOOD, embedding_model=model)
    assert right.memory.embedding_model == model
