"""Documents: their text, read by parsers that a hostile file cannot turn against the server."""

from sage_server.adapters.documents.reader import FileDocumentReader

__all__ = ["FileDocumentReader"]
