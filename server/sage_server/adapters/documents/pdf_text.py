"""PDF to text."""

from __future__ import annotations

import io

from pypdf import PasswordType, PdfReader

from sage_server.adapters.documents.extraction import Extracted, Limits, Refusal, Refused, extracted
from sage_server.domain.chunks import normalised


def extract_pdf(content: bytes, limits: Limits) -> Extracted:
    """The text of all pages, in their order.

    A damaged file can raise anything. It belongs into the child process, where whatever is raised ends the
    process and so means that the file is damaged.
    """
    reader = _opened(content)
    count = len(reader.pages)
    if count == 0:
        raise Refused(Refusal.DAMAGED)
    if count > limits.pages:
        raise Refused(Refusal.PAGES)
    return extracted(_title(reader), "\n\n".join(_pages(reader, limits)), limits)


def _opened(content: bytes) -> PdfReader:
    """A reader that can read. Files that only restrict what may be done with them open without a password."""
    try:
        reader = PdfReader(io.BytesIO(content))
    except NotImplementedError:
        # Encrypted in a way that the library does not know, with certificates for example.
        raise Refused(Refusal.ENCRYPTED) from None
    if reader.is_encrypted and reader.decrypt("") == PasswordType.NOT_DECRYPTED:
        raise Refused(Refusal.ENCRYPTED)
    return reader


def _pages(reader: PdfReader, limits: Limits) -> list[str]:
    """The text of each page. Stops once there is too much, before it fills the memory."""
    pages: list[str] = []
    chars = 0
    for page in reader.pages:
        text = normalised(page.extract_text())
        chars += len(text)
        if chars > limits.chars:
            raise Refused(Refusal.CHARACTERS)
        pages.append(text)
    return pages


def _title(reader: PdfReader) -> str:
    """The title that the file gives itself."""
    title = reader.metadata.title if reader.metadata is not None else None
    return title if isinstance(title, str) else ""
