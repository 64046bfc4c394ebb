"""HTML to text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from selectolax.lexbor import LexborDocumentOptions, LexborHTMLParser, LexborNode

from sage_server.adapters.documents.encodings import declared_encoding
from sage_server.adapters.documents.extraction import Extracted, Limits, decoded, extracted

_DROPPED = frozenset({"head", "iframe", "noscript", "object", "script", "style", "svg", "template"})
_GAPS = ("", " ", "\n", "\n\n")
_BREAKS = {
    **dict.fromkeys(("article", "aside", "blockquote", "dl", "fieldset", "figure", "footer", "form"), "\n\n"),
    **dict.fromkeys(("h1", "h2", "h3", "h4", "h5", "h6", "header", "hr", "main", "nav", "ol"), "\n\n"),
    **dict.fromkeys(("p", "pre", "section", "table", "ul"), "\n\n"),
    **dict.fromkeys(("address", "caption", "center", "dd", "details", "div", "dt", "figcaption"), "\n"),
    **dict.fromkeys(("legend", "li", "option", "summary", "tbody", "tfoot", "thead", "tr"), "\n"),
    **dict.fromkeys(("td", "th"), " "),
    # A line end that is none of the gaps, since two of them in a row are a blank line.
    "br": "\v",
}
"""What parts an element from its neighbours."""

_SPACE = re.compile(r"\s+")


def extract_html(content: bytes, limits: Limits) -> Extracted:
    """What a reader of the page would see, with its blocks as lines and its title first."""
    page = LexborHTMLParser(
        decoded(content, declared_encoding(content) or "utf-8"),
        options=LexborDocumentOptions.WO_EVENTS,
        scripting=True,
    )
    found = page.css_first("head > title")
    title = found.text() if found is not None else ""
    body = "".join(_parted(_pieces(page.body))) if page.body is not None else ""
    return extracted(title, f"{title}\n\n{body}", limits)


def _parted(pieces: Iterable[str]) -> Iterator[str]:
    """The pieces with the widest of the gaps between two of them instead of all."""
    widest = 0
    for piece in pieces:
        if piece in _GAPS:
            widest = max(widest, _GAPS.index(piece))
        else:
            yield _GAPS[widest]
            yield piece
            widest = 0


def _pieces(top: LexborNode) -> Iterator[str]:
    """Text and gaps below a node. A walk without recursion, since pages nest as deep as they like."""
    node = top.first_child
    preformatted = 0
    while node is not None:
        tag = node.tag or ""
        if tag == "-text":
            text = node.text_content or ""
            yield text if preformatted else _SPACE.sub(" ", text)
        yield _BREAKS.get(tag, "")
        below = None if tag in _DROPPED else node.first_child
        if below is not None:
            preformatted += tag == "pre"
            node = below
            continue
        while (following := node.next) is None:
            parent = node.parent
            if parent is None or parent.mem_id == top.mem_id:
                return
            preformatted -= parent.tag == "pre"
            yield _BREAKS.get(parent.tag or "", "")
            node = parent
        node = following
