"""A moved, swapped or altered ciphertext never opens, and says so; everything else stays readable."""

from __future__ import annotations

import asyncio
import base64
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid4

import asyncpg
import pytest

import sage_client
from sage_client import ItemKind, MemoryFilter, NewItem, NewMemory, ToolInvocation
from sage_server.adapters.crypto import FileRootKeys
from sage_server.adapters.crypto.cipher import AesUserCipher
from sage_server.domain.errors import Reason, SageError
from sage_server.ports.keys import Cell, Purpose, RootKeyError
from support.postgres import TestPostgres
from support.server import RunningServer, running_server

TITLE = Cell("conversations", "title_enc", Purpose.CONTENT)
METADATA = Cell("conversations", "metadata_enc", Purpose.CONTENT)
CONTENT = Cell("items", "content_enc", Purpose.CONTENT)
LABEL = Cell("memory_blocks", "label_tag", Purpose.TAGS)


@dataclass(frozen=True)
class Place:
    """A cell of the database."""

    table: str
    column: str
    row: str


@dataclass(frozen=True)
class Person:
    """A user with two conversations, the first with items."""

    client: sage_client.AsyncSageClient
    thread: sage_client.Conversation
    other: sage_client.Conversation
    items: tuple[str, ...]

    def place(self, column: str) -> Place:
        if column in {"title_enc", "metadata_enc"}:
            return Place("conversations", column, self.thread.id)
        return Place("items", column, self.items[0])

    async def read(self, column: str) -> None:
        """Read what needs the cell."""
        if column in {"title_enc", "metadata_enc"}:
            await self.client.conversations.get(self.thread.id)
        else:
            async for _ in self.client.conversations.items(self.thread.id):
                pass


@dataclass(frozen=True)
class Vault:
    """A server, its database, and two people."""

    server: RunningServer
    database: asyncpg.Connection
    maria: Person
    otto: Person

    async def cell(self, place: Place) -> bytes:
        query = f"SELECT {place.column} FROM {place.table} WHERE id = $1"
        return bytes(await self.database.fetchval(query, UUID(place.row)))

    async def write(self, place: Place, value: bytes) -> None:
        query = f"UPDATE {place.table} SET {place.column} = $2 WHERE id = $1"
        assert await self.database.execute(query, UUID(place.row), value) == "UPDATE 1"

    @asynccontextmanager
    async def holding(self, place: Place, value: bytes) -> AsyncIterator[None]:
        """With another value in a cell, for a while."""
        kept = await self.cell(place)
        await self.write(place, value)
        try:
            yield
        finally:
            await self.write(place, kept)


async def _person(client: sage_client.AsyncSageClient) -> Person:
    thread = await client.conversations.create("A title", metadata={"a": "b"})
    tool = ToolInvocation("call", "clock", "{}")
    appended = await client.conversations.append(
        thread.id,
        [NewItem(ItemKind.TOOL_CALL, "text", author="ann", tool=tool) for _ in range(3)],
    )
    other = await client.conversations.create("Another title", metadata={"c": "d"})
    return Person(client, thread, other, tuple(item.id for item in appended))


@pytest.fixture(scope="module")
async def vault(postgres: TestPostgres) -> AsyncIterator[Vault]:
    async with (
        postgres.database() as dsn,
        running_server(dsn) as server,
        sage_client.connect_async(server.address, user="maria") as maria,
        sage_client.connect_async(server.address, user="otto") as otto,
    ):
        database = await asyncpg.connect(dsn)
        try:
            yield Vault(server, database, await _person(maria), await _person(otto))
        finally:
            await database.close()


COLUMNS = ("title_enc", "metadata_enc", "content_enc", "author_enc", "tool_enc")


async def _opens(read: Callable[[], Awaitable[None]]) -> bool:
    """Whether a cell was decrypted."""
    try:
        await read()
    except sage_client.DataLoss as lost:
        return lost.reason != "DATA_LOSS"
    except sage_client.Internal:
        pass  # It was decrypted, and then it was not what belongs there.
    return True


async def _assert_lost(vault: Vault, column: str, value: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """With this value in Maria's cell, reading it is DATA_LOSS with the row in the log."""
    place = vault.maria.place(column)
    caplog.clear()
    async with vault.holding(place, value):
        assert not await _opens(lambda: vault.maria.read(column))
        # Everything around it can still be read.
        assert (await vault.maria.client.conversations.get(vault.maria.other.id)) == vault.maria.other
        assert await _opens(lambda: vault.otto.read(column))
    logged = [vars(r) for r in caplog.records if r.name == "sage.crypto"]
    named = (logged[0]["table"], logged[0]["column"], str(logged[0]["row"]))
    assert named == (place.table, place.column, place.row)
    assert await _opens(lambda: vault.maria.read(column))


async def _swapped_cells_that_open(vault: Vault) -> list[str]:
    """Put cells where they do not belong; which of them open there?"""
    maria, otto = vault.maria, vault.otto
    sources = {
        "another column": ("title_enc", maria.place("metadata_enc")),
        "another column, the other way": ("metadata_enc", maria.place("title_enc")),
        "another column of an item": ("content_enc", maria.place("author_enc")),
        "another row": ("title_enc", Place("conversations", "title_enc", maria.other.id)),
        "another row of items": ("content_enc", Place("items", "content_enc", maria.items[1])),
        "another user": ("title_enc", otto.place("title_enc")),
        "another user's item": ("content_enc", otto.place("content_enc")),
        "another table": ("title_enc", maria.place("content_enc")),
        "another table, the other way": ("content_enc", maria.place("title_enc")),
    }
    opened = []
    for name, (column, source) in sources.items():
        async with vault.holding(maria.place(column), await vault.cell(source)):
            if await _opens(lambda column=column: maria.read(column)):  # type: ignore[misc]
                opened.append(name)
    return opened


async def test_a_cell_opens_in_no_other_column_row_user_or_table(vault: Vault) -> None:
    assert await _swapped_cells_that_open(vault) == []


async def test_without_associated_data_swapped_cells_would_open(
    dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shows that the test above can fail: it is the associated data that ties a cell to its place."""
    monkeypatch.setattr(AesUserCipher, "_associated", lambda *_: b"")
    kept = AesUserCipher.seal, AesUserCipher.try_open
    nowhere = UUID(int=0)
    monkeypatch.setattr(AesUserCipher, "seal", lambda self, cell, _, text: kept[0](self, cell, nowhere, text))
    monkeypatch.setattr(
        AesUserCipher, "try_open", lambda self, cell, _, text: kept[1](self, cell, nowhere, text)
    )
    async with (
        running_server(dsn) as server,
        sage_client.connect_async(server.address, user="maria") as maria,
        sage_client.connect_async(server.address, user="otto") as otto,
    ):
        database = await asyncpg.connect(dsn)
        try:
            vault = Vault(server, database, await _person(maria), await _person(otto))
            opened = await _swapped_cells_that_open(vault)
        finally:
            await database.close()
    assert [name for name in opened if "another user" in name] == []  # another user has another key
    assert len(opened) == 7


@pytest.mark.parametrize("column", COLUMNS)
async def test_a_flipped_bit_anywhere_is_data_loss(
    vault: Vault, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    sealed = await vault.cell(vault.maria.place(column))
    # Format, key version, nonce, ciphertext, tag: the first and the last byte of each.
    for at in (0, 1, 4, 5, 16, 17, len(sealed) - 17, len(sealed) - 16, len(sealed) - 1):
        for bit in (0, 7):
            altered = bytearray(sealed)
            altered[at] ^= 1 << bit
            await _assert_lost(vault, column, bytes(altered), caplog)


@pytest.mark.parametrize("column", COLUMNS)
async def test_a_cut_extended_or_plain_cell_is_data_loss(
    vault: Vault, column: str, caplog: pytest.LogCaptureFixture
) -> None:
    sealed = await vault.cell(vault.maria.place(column))
    plain = b'{"a":"b"}' if column == "metadata_enc" else b"A title that nobody sealed, and long enough"
    for value in (b"", sealed[:1], sealed[:17], sealed[:-1], sealed[:33], sealed + b"\0", plain, b"\0" * 64):
        await _assert_lost(vault, column, value, caplog)
    header = sealed[:5]
    for value in (header + plain, header + os.urandom(64), b"\x01\xff\xff\xff\xff" + sealed[5:]):
        await _assert_lost(vault, column, value, caplog)


async def test_a_list_with_a_bad_row_is_data_loss_and_not_a_shorter_list(vault: Vault) -> None:
    maria = vault.maria
    async with vault.holding(Place("items", "content_enc", maria.items[1]), b"x" * 40):
        with pytest.raises(sage_client.DataLoss):
            await maria.client.conversations.items_page(maria.thread.id)
        with pytest.raises(sage_client.DataLoss):
            await maria.client.conversations.fork(maria.thread.id)
        with pytest.raises(sage_client.DataLoss):
            [event async for event in maria.client.conversations.export()]
        # The rows before it can be had on their own.
        page = await maria.client.conversations.items_page(maria.thread.id, page_size=1)
        assert [item.text for item in page.items] == ["text"]
    async with vault.holding(maria.place("title_enc"), b"x" * 40):
        with pytest.raises(sage_client.DataLoss):
            await maria.client.conversations.list_page()
        assert (await maria.client.conversations.list_page(page_size=1)).items == (maria.other,)


async def test_a_bad_row_fails_no_other_read_at_the_same_time(vault: Vault) -> None:
    """Reads may share a round trip."""
    maria, otto = vault.maria, vault.otto

    async def read(person: Person, thread: sage_client.Conversation) -> sage_client.Conversation | None:
        try:
            return await person.client.conversations.get(thread.id)
        except sage_client.DataLoss:
            return None

    async with vault.holding(maria.place("title_enc"), b"x" * 40):
        for _ in range(5):
            wanted = [
                (maria, maria.thread),
                (maria, maria.other),
                (otto, otto.thread),
                (otto, otto.other),
            ] * 5
            found = await asyncio.gather(*(read(*each) for each in wanted))
            for (_, thread), answer in zip(wanted, found, strict=True):
                assert (answer is None) == (thread is maria.thread)
                assert answer is None or answer.title == thread.title


async def test_a_bad_row_can_still_be_removed(vault: Vault) -> None:
    client = vault.maria.client
    thread = await client.conversations.create("Short-lived")
    item, last = await client.conversations.append(thread.id, [NewItem.user("a"), NewItem.user("b")])
    await vault.write(Place("items", "content_enc", item.id), b"")
    await client.conversations.delete_item(thread.id, item.id)
    assert [i.id async for i in client.conversations.items(thread.id)] == [last.id]
    await vault.write(Place("conversations", "title_enc", thread.id), b"")
    assert (await client.conversations.batch_delete([thread.id])).deleted_count == 1


async def test_a_kept_answer_that_was_swapped_is_data_loss(vault: Vault) -> None:
    client = vault.maria.client
    ids = [str(uuid4()), str(uuid4())]
    for request_id in ids:
        await client.conversations.create("Kept", request_id=request_id)
    places = [Place("requests", "response_enc", request_id) for request_id in ids]
    async with vault.holding(places[0], await vault.cell(places[1])):
        with pytest.raises(sage_client.DataLoss):
            await client.conversations.create("Kept", request_id=ids[0])
    await client.conversations.create("Kept", request_id=ids[0])


async def test_an_api_keys_name_that_was_swapped_is_data_loss(vault: Vault) -> None:
    admin = vault.maria.client.admin
    first, second = await admin.create_api_key("one"), await admin.create_api_key("two")
    places = [Place("api_keys", "name_enc", key.api_key.id) for key in (first, second)]
    async with vault.holding(places[0], await vault.cell(places[1])):
        with pytest.raises(sage_client.DataLoss):
            [key async for key in admin.list_api_keys()]
    assert {key.name async for key in admin.list_api_keys()} == {"one", "two"}


@dataclass(frozen=True)
class Mind:
    """A user with two archival memories, and how to make the server read them anew."""

    server: RunningServer
    client: sage_client.AsyncSageClient
    ids: tuple[str, str]

    def place(self, column: str, at: int = 0) -> Place:
        return Place("memories", column, self.ids[at])

    async def search(self) -> list[str]:
        """Everything, from the database."""
        self.server.application.memory.indexes.forget_all()
        return sorted(result.memory.text for result in (await self.client.memory.search("word")).results)


async def _mind(server: RunningServer, client: sage_client.AsyncSageClient) -> Mind:
    inserted = await client.memory.insert_many(
        [NewMemory(f"word {n}", tags=["tag", f"t{n}"], metadata={"n": str(n)}) for n in range(2)]
    )
    return Mind(server, client, (inserted.ids[0], inserted.ids[1]))


@pytest.fixture(scope="module")
async def minds(vault: Vault) -> tuple[Mind, Mind]:
    """Maria's and Otto's memories, in the vault."""
    return await _mind(vault.server, vault.maria.client), await _mind(vault.server, vault.otto.client)


async def _assert_memory_lost(vault: Vault, minds: tuple[Mind, Mind], place: Place, value: bytes) -> None:
    """With this value in Maria's cell her search is DATA_LOSS, and nobody else's is."""
    maria, otto = minds
    async with vault.holding(place, value):
        with pytest.raises(sage_client.DataLoss) as lost:
            await maria.search()
        assert lost.value.metadata == {"table": "memories", "column": place.column}
        assert await otto.search() == ["word 0", "word 1"]
        assert (await maria.client.memory.get(maria.ids[1])).text == "word 1"
    assert await maria.search() == ["word 0", "word 1"]


@pytest.mark.parametrize("column", ["content_enc", "metadata_enc", "vector_0_enc"])
async def test_an_altered_or_swapped_cell_of_a_memory_fails_its_users_search_and_no_other(
    vault: Vault, minds: tuple[Mind, Mind], column: str
) -> None:
    maria, otto = minds
    sealed = await vault.cell(maria.place(column))
    flipped = [bytearray(sealed) for _ in range(4)]
    for altered, at in zip(flipped, (0, 1, 20, len(sealed) - 1), strict=True):
        altered[at] ^= 1
    another_row = await vault.cell(maria.place(column, 1))
    another_user = await vault.cell(otto.place(column))
    for value in (*map(bytes, flipped), another_row, another_user, b"", b"\0" * len(sealed), sealed[:-1]):
        await _assert_memory_lost(vault, minds, maria.place(column), value)


async def test_a_cell_of_a_memory_opens_in_no_other_column(vault: Vault, minds: tuple[Mind, Mind]) -> None:
    maria = minds[0]
    columns = ("content_enc", "metadata_enc", "vector_0_enc")
    for column in columns:
        for other in columns:
            if other != column:
                value = await vault.cell(maria.place(other))
                await _assert_memory_lost(vault, minds, maria.place(column), value)


async def test_a_vector_opens_in_no_other_slot(vault: Vault, minds: tuple[Mind, Mind]) -> None:
    """As when somebody makes the place of another model the one that is searched."""
    maria = minds[0]
    move = "UPDATE memories SET vector_1_enc = vector_0_enc, model_1 = model_0 WHERE id = ANY($1)"
    await vault.database.execute(move, [UUID(one) for one in maria.ids])
    user = await vault.database.fetchval("SELECT user_id FROM memories WHERE id = $1", UUID(maria.ids[0]))
    slot = "UPDATE heads SET vector_slot = $2 WHERE user_id = $1"
    await vault.database.execute(slot, user, 1)
    try:
        with pytest.raises(sage_client.DataLoss) as lost:
            await maria.search()
        assert lost.value.metadata == {"table": "memories", "column": "vector_1_enc"}
    finally:
        await vault.database.execute(slot, user, 0)
    assert await maria.search() == ["word 0", "word 1"]


async def test_an_altered_or_foreign_tag_is_data_loss_and_never_another_tag(
    vault: Vault, minds: tuple[Mind, Mind]
) -> None:
    maria, otto = minds
    read = "SELECT tags FROM memories WHERE id = $1"
    write = "UPDATE memories SET tags = $2 WHERE id = $1"
    row = UUID(maria.ids[0])
    kept = await vault.database.fetchval(read, row)
    theirs = await vault.database.fetchval(read, UUID(otto.ids[0]))
    altered = bytearray(kept[0])
    altered[-1] ^= 1
    for tags in ([bytes(altered)], theirs, [b"tag"], [b""]):
        await vault.database.execute(write, row, tags)
        try:
            with pytest.raises(sage_client.DataLoss):
                await maria.search()
            with pytest.raises(sage_client.DataLoss):
                await maria.client.memory.get(maria.ids[0])
            found = [one.id async for one in maria.client.memory.list(MemoryFilter(tags=["tag"]))]
            assert found == [maria.ids[1]]
        finally:
            await vault.database.execute(write, row, kept)
    assert await maria.search() == ["word 0", "word 1"]


async def test_a_memory_that_does_not_open_can_still_be_deleted(vault: Vault) -> None:
    client = vault.maria.client.with_options(user="anna")
    mind = await _mind(vault.server, client)
    await vault.write(mind.place("vector_0_enc"), b"x" * 60)
    with pytest.raises(sage_client.DataLoss):
        await mind.search()
    await client.memory.delete_many([mind.ids[0]])
    assert await mind.search() == ["word 1"]
    await vault.write(mind.place("content_enc", 1), b"x" * 60)
    assert (await client.memory.delete_all()).deleted_count == 1
    assert await mind.search() == []


def _cipher(user_id: UUID | None = None, key: bytes = b"k" * 32) -> AesUserCipher:
    return AesUserCipher(user_id or UUID(int=1), {1: key})


def test_sealing_twice_gives_different_bytes_that_open_to_the_same() -> None:
    cipher, row = _cipher(), uuid4()
    sealed = [cipher.seal(TITLE, row, b"text") for _ in range(2)]
    assert sealed[0] != sealed[1]
    assert [cipher.open(TITLE, row, cell) for cell in sealed] == [b"text"] * 2


def test_one_key_for_two_users_still_opens_no_cell_of_the_other() -> None:
    """The user is in the associated data, not only in the key."""
    mine, theirs, row = _cipher(UUID(int=1)), _cipher(UUID(int=2)), uuid4()
    assert theirs.try_open(TITLE, row, mine.seal(TITLE, row, b"text")) is None


def test_places_whose_names_run_together_are_different_places() -> None:
    cipher, row = _cipher(), uuid4()
    one, two = (Cell(table, column, Purpose.CONTENT) for table, column in (("ab", "c"), ("a", "bc")))
    assert cipher.try_open(two, row, cipher.seal(one, row, b"text")) is None


def test_every_purpose_has_a_key_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    cipher, row = _cipher(), uuid4()
    monkeypatch.setattr(AesUserCipher, "_associated", lambda *_: b"")
    sealed = cipher.seal(TITLE, row, b"text")
    for purpose in Purpose:
        opened = cipher.try_open(Cell("conversations", "title_enc", purpose), row, sealed)
        assert (opened == b"text") == (purpose is Purpose.CONTENT)


def test_equal_labels_give_equal_bytes_whatever_their_case_space_and_form() -> None:
    cipher = _cipher()
    forms = [
        "Café Straße",
        "  café straße\n",
        "CAFE\u0301 STRASSE",
        "Ｃａｆé　ｓｔｒａßｅ",
        "cafe\u0301 strasse",
    ]
    assert len({cipher.tag(LABEL, form) for form in forms}) == 1
    assert cipher.open_tag(LABEL, cipher.tag(LABEL, forms[0])) == "café strasse"
    assert cipher.tag(LABEL, "cafe strasse") != cipher.tag(LABEL, forms[0])


def test_equal_labels_differ_between_users_keys_and_columns() -> None:
    other = Cell("memory_blocks", "another_tag", Purpose.TAGS)
    tags = {
        _cipher().tag(LABEL, "garden"),
        _cipher(UUID(int=2)).tag(LABEL, "garden"),
        _cipher(key=b"l" * 32).tag(LABEL, "garden"),
        _cipher().tag(other, "garden"),
        AesUserCipher(UUID(int=1), {1: b"k" * 32, 2: b"k" * 32}).tag(LABEL, "garden"),
    }
    assert len(tags) == 5


def test_a_label_opens_in_no_other_place_and_not_when_altered() -> None:
    sealed = _cipher().tag(LABEL, "garden")
    other = Cell("memory_blocks", "another_tag", Purpose.TAGS)
    wrong = [(_cipher(), other, sealed), (_cipher(UUID(int=2)), LABEL, sealed), (_cipher(), LABEL, b"")]
    wrong += [(_cipher(), LABEL, sealed[:-1]), (_cipher(), LABEL, b"garden" * 5)]
    for at in range(len(sealed)):
        altered = bytearray(sealed)
        altered[at] ^= 1
        wrong.append((_cipher(), LABEL, bytes(altered)))
    for cipher, cell, value in wrong:
        with pytest.raises(SageError) as raised:
            cipher.open_tag(cell, value)
        assert raised.value.reason is Reason.DATA_LOSS


async def test_the_root_key_file_is_made_private_and_found_again(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        keys = FileRootKeys.open_or_create(tmp_path / "new" / "root.key")
    finally:
        os.umask(old)
    path = tmp_path / "new" / "root.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["root.key"]
    key_id, wrapped = await keys.wrap(b"secret", b"context")
    assert b"secret" not in wrapped
    again = FileRootKeys.open_or_create(path)
    assert await again.unwrap(key_id, wrapped, b"context") == b"secret"
    with pytest.raises(RootKeyError):
        await again.unwrap(key_id, wrapped, b"another context")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o601])
async def test_a_root_key_file_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "root.key"
    FileRootKeys.open_or_create(path)
    secret = path.read_text().split()[1]
    path.chmod(mode)
    with pytest.raises(RootKeyError, match="chmod 600") as raised:
        FileRootKeys.open_or_create(path)
    assert secret not in str(raised.value)


@pytest.mark.parametrize("content", ["", "\n", "k1", "k1 AAAA", "k1 " + "!" * 44, "\0" * 50])
async def test_a_damaged_root_key_file_is_refused_and_not_replaced(tmp_path: Path, content: str) -> None:
    path = tmp_path / "root.key"
    path.touch(mode=0o600)
    path.write_text(content)
    with pytest.raises(RootKeyError):
        FileRootKeys.open_or_create(path)
    assert path.read_text() == content


async def test_another_root_key_than_the_databases_is_refused_at_the_start(dsn: str) -> None:
    async with running_server(dsn):
        pass
    other = base64.b64encode(b"B" * 32).decode()
    for root_key, told in ((f"test:{other}", "does not open"), (f"new:{other}", "Root key test is not")):
        with pytest.raises(RootKeyError, match=told) as raised:
            async with running_server(dsn, root_key=root_key):
                pass
        assert other not in str(raised.value)
    async with running_server(dsn, root_key=f"new:{other}", root_key_previous="test:" + "A" * 43 + "="):
        pass


async def test_wrapped_keys_swapped_between_users_do_not_open(dsn: str) -> None:
    async with (
        running_server(dsn) as server,
        sage_client.connect_async(server.address, user="maria") as maria,
        sage_client.connect_async(server.address, user="otto") as otto,
        sage_client.connect_async(server.address, user="anna") as anna,
    ):
        threads = {client: await client.conversations.create("Title") for client in (maria, otto, anna)}
        database = await asyncpg.connect(dsn)
        try:
            query = "SELECT user_id, wrapped_key FROM user_keys k JOIN users u ON u.id = k.user_id"
            rows = await database.fetch(f"{query} WHERE u.external_id = ANY($1)", ["maria", "otto"])
            for (user_id, _), (_, wrapped) in zip(rows, reversed(rows), strict=True):
                await database.execute(
                    "UPDATE user_keys SET wrapped_key = $2 WHERE user_id = $1", user_id, wrapped
                )
        finally:
            await database.close()
        async with running_server(dsn) as fresh:
            for client, thread in threads.items():
                async with sage_client.connect_async(fresh.address, user=client.options.user) as again:
                    if client is anna:
                        assert await again.conversations.get(thread.id) == thread
                        continue
                    with pytest.raises(sage_client.DataLoss):
                        await again.conversations.get(thread.id)
                    with pytest.raises(sage_client.DataLoss):
                        await again.conversations.create("Sealed with a key of somebody else?")
