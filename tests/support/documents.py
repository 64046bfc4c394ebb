"""Sample documents, good and bad."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence

from pypdf import PdfWriter


def pdf(*pages: str, title: str = "") -> bytes:
    """A PDF with a line of text on each page; a page without text holds a rectangle, as a scan would."""
    contents = [_shown(page) for page in pages]
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(contents)))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(contents)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    for number, content in enumerate(contents):
        page = (
            f"/MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 R >> >> /Contents {5 + 2 * number} 0 R"
        )
        objects.append(f"<< /Type /Page /Parent 2 0 R {page} >>".encode())
        objects.append(f"<< /Length {len(content)} >>\nstream\n".encode() + content + b"\nendstream")
    objects.append(b"<< /Title (" + title.encode("latin-1") + b") >>")
    return pdf_file(objects, f"/Root 1 0 R /Info {len(objects)} 0 R")


def pdf_file(objects: Sequence[bytes], trailer: str) -> bytes:
    """The file around objects that are numbered from 1."""
    out = bytearray(b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n")
    offsets: list[int] = []
    for number, content in enumerate(objects, start=1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n".encode() + content + b"\nendobj\n"
    start = len(out)
    out += f"xref\n0 {len(objects) + 1}\n0000000000 65535 f \n".encode()
    out += b"".join(f"{offset:010} 00000 n \n".encode() for offset in offsets)
    out += f"trailer\n<< /Size {len(objects) + 1} {trailer} >>\nstartxref\n{start}\n%%EOF\n".encode()
    return bytes(out)


def _shown(text: str) -> bytes:
    if not text:
        return b"0 0 612 792 re f"
    return b"BT /F1 12 Tf 72 720 Td (" + text.encode("cp1252") + b") Tj ET"


def slow_pdf() -> bytes:
    """Some kilobytes that take minutes to read, and little memory: pages that share much content."""
    data = zlib.compress(b"BT /F1 9 Tf (a) Tj ET " * 50_000)
    page = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Contents 4 0 R"
    page += b" /Resources << /Font << /F1 3 0 R >> >> >>"
    kids = " ".join(f"{5 + number} 0 R" for number in range(1000))
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count 1000 >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        f"<< /Filter /FlateDecode /Length {len(data)} >>\nstream\n".encode() + data + b"\nendstream",
        *([page] * 1000),
    ]
    return pdf_file(objects, "/Root 1 0 R")


def encrypted_pdf(text: str, password: str) -> bytes:
    """A PDF that needs the password, or none if it is empty, and forbids everything to those who have it."""
    writer = PdfWriter(clone_from=io.BytesIO(pdf(text)))
    writer.encrypt(password, owner_password="the owner's", algorithm="AES-256")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def certified_pdf() -> bytes:
    """A PDF that is encrypted for the holders of certificates."""
    encrypt = b"<< /Filter /Adobe.PubSec /SubFilter /adbe.pkcs7.s5 /V 4 /Length 128 >>"
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>", b"<< /Type /Pages /Kids [] /Count 0 >>", encrypt]
    return pdf_file(objects, "/Root 1 0 R /Encrypt 3 0 R /ID [(1234567890123456) (1234567890123456)]")


def endless_pdf() -> bytes:
    """A PDF whose pages contain themselves."""
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [2 0 R 2 0 R] /Count 2 /Parent 2 0 R >>",
    ]
    return pdf_file(objects, "/Root 1 0 R")


def bomb_pdf() -> bytes:
    """Half a megabyte that would become half a gigabyte."""
    squeeze = zlib.compressobj(9)
    data = b"".join(squeeze.compress(b" " * 2**20) for _ in range(512)) + squeeze.flush()
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 9 9] /Resources << /Font << >> >> /Contents 4 0 R >>",
        f"<< /Filter /FlateDecode /Length {len(data)} >>\nstream\n".encode() + data + b"\nendstream",
    ]
    return pdf_file(objects, "/Root 1 0 R")


def archive() -> bytes:
    """A zip, as a word processor would write it."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("word/document.xml", "<document/>")
    return out.getvalue()


def nested_html(depth: int, text: str) -> bytes:
    """A text within so many elements."""
    return b"<!doctype html>" + b"<div>" * depth + text.encode() + b"</div>" * depth


PAGE = """<!DOCTYPE html>
<html><head><title>Trees &amp; shrubs</title><style>p { color: red }</style>
<script>var a = "<p>no</p>";</script>
</head><body>
<nav><a href="/">Home</a></nav>
<h1>Oak</h1>
<p>An  oak is
a <b>tree</b>.</p><p>It bears&nbsp;acorns.<br>Small ones<br><br>and large.</p>
<ul><li>white</li> <li>red</li></ul>
<table><tr><th>Kind</th><th>Height</th></tr><tr><td>English</td><td>20&nbsp;m</td></tr></table>
<pre>one
  two</pre>
<svg><text>drawn</text></svg><template><p>hidden</p></template><noscript>no scripts</noscript>
<!-- a comment -->
Bye
<script>document.write("<p>written</p>")</script></body></html>"""

PAGE_TEXT = """Trees & shrubs

Home

Oak

An oak is a tree.

It bears acorns.
Small ones

and large.

white
red

Kind Height
English 20 m

one
two

Bye"""
