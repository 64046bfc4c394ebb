"""Documents through the real parsers, in their real child process."""

from __future__ import annotations

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from sage_server.adapters.documents import FileDocumentReader
from sage_server.adapters.documents import child as child_module
from sage_server.domain.errors import Reason, SageError
from support import documents

CANARY = "canary-7f3a"
UNREADABLE, UNSUPPORTED = Reason.DOCUMENT_UNREADABLE, Reason.DOCUMENT_TYPE_UNSUPPORTED
EMPTY, TOO_LARGE = Reason.DOCUMENT_EMPTY, Reason.DOCUMENT_TOO_LARGE

LATIN_1 = f"Grüße, {CANARY}".encode("latin-1")
PAGE_IN_1252 = f'<html><meta charset="ISO-8859-1"><p>Grüße für 5 €, {CANARY}</p></html>'.encode("cp1252")
GOOD_PDF = documents.pdf(CANARY)
PDF = "application/pdf"

MALFORMED = {
    "PDF with a password": (documents.encrypted_pdf(CANARY, "secret"), "", UNREADABLE, (PDF, "encrypted")),
    "PDF for certificates": (documents.certified_pdf(), "", UNREADABLE, (PDF, "encrypted")),
    "PDF cut off": (GOOD_PDF[: len(GOOD_PDF) // 3], "", UNREADABLE, (PDF, "damaged")),
    "PDF without its end": (GOOD_PDF[:-20], "", UNREADABLE, (PDF, "damaged")),
    "PDF that is only a header": (b"%PDF-1.7\n", "", UNREADABLE, (PDF, "damaged")),
    "PDF that is noise": (b"%PDF-1.7\n" + random.Random(1).randbytes(5000), "", UNREADABLE, (PDF, "damaged")),
    "PDF that contains itself": (documents.endless_pdf(), "", UNREADABLE, (PDF, "damaged")),
    "PDF that is a bomb": (documents.bomb_pdf(), "", UNREADABLE, (PDF, "damaged")),
    "PDF without pages": (documents.pdf(), "", UNREADABLE, (PDF, "damaged")),
    "text declared as PDF": (CANARY.encode(), PDF, UNREADABLE, (PDF, "damaged")),
    "noise declared as PDF": (b"\0\1\2\3" * 99, PDF, UNREADABLE, (PDF, "damaged")),
    "PDF declared as text": (GOOD_PDF, "text/plain", UNREADABLE, ("text/plain", "encoding")),
    "PDF declared as HTML": (GOOD_PDF, "text/html", UNREADABLE, ("text/html", "encoding")),
    "scanned PDF": (documents.pdf("", ""), "", EMPTY, (PDF,)),
    "zip": (documents.archive(), "", UNSUPPORTED, ("application/zip",)),
    "zip declared as PDF": (documents.archive(), PDF, UNSUPPORTED, ("application/zip",)),
    "png": (b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "", UNSUPPORTED, ("image/png",)),
    "jpeg as text": (b"\xff\xd8\xff\xe0\0\x10JFIF", "text/plain", UNSUPPORTED, ("image/jpeg",)),
    "gif": (b"GIF89a\1\0\1\0\x80\0\0", "", UNSUPPORTED, ("image/gif",)),
    "gzip": (b"\x1f\x8b\x08\0", "text/markdown", UNSUPPORTED, ("application/gzip",)),
    "program": (b"\x7fELF\2\1\1\0", "", UNSUPPORTED, ("application/x-elf",)),
    "old office file": (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0",
        "",
        UNSUPPORTED,
        ("application/x-ole-storage",),
    ),
    "rich text": (rb"{\rtf1\ansi " + CANARY.encode() + b"}", "", UNSUPPORTED, ("application/rtf",)),
    "text with a zero": (CANARY.encode() + b"\0", "text/plain", UNSUPPORTED, ("application/octet-stream",)),
    "control characters": (b"\1\2\3\4 abc" * 20, "", UNSUPPORTED, ("application/octet-stream",)),
    "UTF-16 without a mark": (CANARY.encode("utf-16-le"), "", UNSUPPORTED, ("application/octet-stream",)),
    "UTF-16 cut off": (CANARY.encode("utf-16")[:-1], "", UNREADABLE, ("text/plain", "encoding")),
    "UTF-32": (CANARY.encode("utf-32"), "", UNREADABLE, ("text/plain", "encoding")),
    "Latin-1": (LATIN_1, "", UNREADABLE, ("text/plain", "encoding")),
    "Latin-1 as Markdown": (LATIN_1, "text/markdown", UNREADABLE, ("text/markdown", "encoding")),
    "Latin-1 as HTML": (LATIN_1, "text/html", UNREADABLE, ("text/html", "encoding")),
    "much Latin-1": (LATIN_1 * 100_000, "", UNREADABLE, ("text/plain", "encoding")),
    "UTF-8 cut off": ("schön".encode()[:-2], "", UNREADABLE, ("text/plain", "encoding")),
    "only space": (b" \r\n\t\xc2\xa0", "", EMPTY, ("text/plain",)),
    "only a byte order mark": (b"\xef\xbb\xbf", "text/markdown", EMPTY, ("text/markdown",)),
    "HTML with only scripts": (f"<html><script>{CANARY}</script>".encode(), "", EMPTY, ("text/html",)),
}
METADATA = {UNREADABLE: ("media_type", "cause"), UNSUPPORTED: ("detected",), EMPTY: ("media_type",)}


async def refused(reader: FileDocumentReader, content: bytes, media_type: str = "") -> SageError:
    with pytest.raises(SageError) as raised:
        await reader.read(content, media_type)
    return raised.value


@pytest.mark.parametrize("name", MALFORMED)
async def test_what_cannot_be_read_says_why(name: str) -> None:
    content, declared, reason, values = MALFORMED[name]
    error = await refused(FileDocumentReader(), content, declared)
    assert error.reason == reason
    assert error.metadata == dict(zip(METADATA[reason], values, strict=True))


@pytest.mark.parametrize(
    "name", ["Latin-1", "much Latin-1", "Latin-1 as HTML", "PDF cut off", "UTF-16 cut off"]
)
async def test_no_error_holds_any_of_the_content(name: str) -> None:
    content, declared, _, _ = MALFORMED[name]
    link: BaseException | None = await refused(FileDocumentReader(), content, declared)
    while link is not None:
        assert CANARY not in repr(link)
        assert not hasattr(link, "object"), "a decoder's error holds what it could not decode"
        link = link.__context__


@pytest.mark.parametrize("media_type", ["text/plain", "text/markdown"])
async def test_text_is_read_as_it_is(media_type: str) -> None:
    text = "# Bäume\r\n\r\n\r\n\r\nEine  Eiche &amp; <b>mehr</b>\t\U0001f333\r\n"
    expected = "# Bäume\n\nEine Eiche &amp; <b>mehr</b> \U0001f333"
    for encoding in ("utf-8", "utf-8-sig", "utf-16"):
        read = await FileDocumentReader().read(text.encode(encoding), media_type)
        assert (read.media_type, read.text, read.title) == (media_type, expected, "")


async def test_text_beyond_a_megabyte_is_read_the_same_way() -> None:
    lines = [f"Line {number} of a long text, with an ö." for number in range(50_000)]
    read = await FileDocumentReader().read("\r\n".join(lines).encode(), "")
    assert read.media_type == "text/plain"
    assert read.text == "\n".join(lines)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
async def test_a_page_is_read_as_people_see_it(encoding: str) -> None:
    read = await FileDocumentReader().read(documents.PAGE.encode(encoding), "")
    assert (read.media_type, read.title) == ("text/html", "Trees & shrubs")
    assert read.text == documents.PAGE_TEXT


async def test_a_page_is_read_in_the_encoding_that_it_declares() -> None:
    read = await FileDocumentReader().read(PAGE_IN_1252, "")
    assert read.text == f"Grüße für 5 €, {CANARY}"
    error = await refused(FileDocumentReader(), PAGE_IN_1252.replace(b"ISO-8859-1", b"utf-8"))
    assert error.metadata == {"media_type": "text/html", "cause": "encoding"}


async def test_a_page_may_nest_deeper_than_any_stack() -> None:
    read = await FileDocumentReader().read(documents.nested_html(20_000, "at the bottom"), "")
    assert read.text == "at the bottom"


async def test_a_pdf_is_read_page_by_page() -> None:
    content = documents.pdf("The first page.", "", "Caf\u00e9 on the third.", title="Three pages")
    for declared in ("", PDF):
        read = await FileDocumentReader().read(content, declared)
        assert (read.media_type, read.title) == (PDF, "Three pages")
        assert read.text == "The first page.\n\nCaf\u00e9 on the third."


async def test_a_pdf_after_other_bytes_is_still_one() -> None:
    read = await FileDocumentReader().read(b"Content-Type: application/pdf\r\n\r\n" + GOOD_PDF, "")
    assert (read.media_type, read.text) == (PDF, CANARY)


async def test_a_pdf_that_opens_without_a_password_is_read() -> None:
    read = await FileDocumentReader().read(documents.encrypted_pdf(CANARY, ""), "")
    assert read.text == CANARY


async def test_more_pages_than_allowed_are_refused() -> None:
    reader = FileDocumentReader(max_pages=3)
    assert (await reader.read(documents.pdf("a", "b", "c"), "")).text == "a\n\nb\n\nc"
    error = await refused(reader, documents.pdf("a", "b", "c", "d"))
    assert (error.reason, error.metadata) == (TOO_LARGE, {"limit": "3", "unit": "pages"})


@pytest.mark.parametrize("kind", ["text/plain", "text/html", PDF])
async def test_more_characters_than_allowed_are_refused(kind: str) -> None:
    def of(text: str) -> bytes:
        return documents.pdf(*text.split()) if kind == PDF else text.encode()

    reader = FileDocumentReader(max_chars=10)
    assert len((await reader.read(of("abcd  efgh"), kind)).text) <= 10
    error = await refused(reader, of("abcdefgh ijklmnop"), kind)
    assert (error.reason, error.metadata) == (TOO_LARGE, {"limit": "10", "unit": "characters"})


async def test_the_largest_text_passes_the_pipe() -> None:
    reader = FileDocumentReader(max_chars=1_000_000)
    text = "\U0001f333" * 1_000_000
    assert (await reader.read(text.encode(), "")).text == text
    assert (await refused(reader, (text + "x").encode())).reason == TOO_LARGE


@pytest.mark.parametrize("kind", ["PDF", "HTML"])
async def test_a_file_that_takes_too_long_is_given_up_and_its_process_ended(kind: str) -> None:
    content = documents.slow_pdf() if kind == "PDF" else documents.nested_html(2_000_000, "deep")
    error = await refused(FileDocumentReader(timeout=2.0), content)
    assert error.reason == UNREADABLE
    assert error.metadata["cause"] == "timeout"
    assert children() == []


async def test_a_process_that_never_got_to_work_is_ended_too() -> None:
    error = await refused(FileDocumentReader(timeout=0.001), GOOD_PDF)
    assert error.metadata == {"media_type": PDF, "cause": "timeout"}
    assert children() == []


async def test_a_cancelled_read_ends_its_process_which_knew_no_secrets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SAGE_CANARY", CANARY)
    reading = asyncio.create_task(FileDocumentReader().read(documents.slow_pdf(), ""))
    pid = await first_child()
    assert CANARY.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    assert children() == []


async def test_only_so_many_processes_run_at_once() -> None:
    reader = FileDocumentReader(at_once=1)
    reading = [asyncio.create_task(reader.read(documents.slow_pdf(), "")) for _ in range(3)]
    await first_child()
    await asyncio.sleep(0.3)
    assert len(children()) == 1
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)
    assert children() == []


def test_a_process_has_the_memory_that_it_is_given_and_no_more() -> None:
    most = 192 * 1024**2
    assert b'"bytes"' in asked(b"few words", most).stdout
    overfull = asked(b"x" * most, most)
    assert overfull.returncode != 0
    assert overfull.stdout == b""


async def test_whatever_is_broken_in_a_pdf_the_answer_is_typed() -> None:
    chance = random.Random(7)
    good = documents.pdf("One page.", "Another page.", title="Title")
    reader = FileDocumentReader(timeout=20.0)

    async def outcome(content: bytes) -> str:
        try:
            return (await reader.read(content, "")).media_type
        except SageError as error:
            return error.reason.value

    def broken() -> bytes:
        content = bytearray(good)
        for _ in range(chance.randint(1, 40)):
            content[chance.randrange(10, len(content))] = chance.randrange(1, 256)
        return bytes(content)

    outcomes = await asyncio.gather(*(outcome(broken()) for _ in range(12)))
    assert set(outcomes) <= {PDF, UNREADABLE.value, EMPTY.value}


def asked(content: bytes, memory: int) -> subprocess.CompletedProcess[bytes]:
    """What the child says to a text."""
    limits = ("--chars", "1000000000", "--pages", "1", "--memory", str(memory), "--seconds", "60")
    command = (sys.executable, "-m", child_module.__name__, "--media-type", "text/plain", *limits)
    return subprocess.run(command, input=content, capture_output=True, check=False)


async def first_child() -> int:
    """Waits until a process of the reader runs its program."""
    while not (found := [pid for pid in children() if Path(f"/proc/{pid}/cmdline").read_bytes()]):  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    return found[0]


def children() -> list[int]:
    """The reader's processes of ours that run, or are dead and not reaped (without a command)."""
    found: list[int] = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            name, _, fields = (entry / "stat").read_text().partition("(")[2].rpartition(")")
            command = (entry / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        ours = child_module.__name__.encode() in command or (not command and name.startswith("python"))
        if ours and int(fields.split()[1]) == os.getpid():
            found.append(int(entry.name))
    return found
