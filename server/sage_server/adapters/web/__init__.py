"""The web: a search engine of the operator's, and pages that may be hostile."""

from __future__ import annotations

from sage_server.adapters.web.connections import Resolver
from sage_server.adapters.web.web import SearxWeb, WebOptions

__all__ = ["Resolver", "SearxWeb", "WebOptions"]
