"""Every contender, in the order of the table."""

from __future__ import annotations

from importlib.metadata import version

from bench.peers.chroma_peer import Chroma
from bench.peers.langgraph_peer import LangGraph
from bench.peers.mem0_peer import Mem0Faiss, Mem0Pgvector
from bench.peers.peer import Peer
from bench.peers.pgvector_peer import PgvectorExact, PgvectorHnsw
from bench.peers.sage_peer import Sage

PEERS: dict[str, type[Peer]] = {
    peer.key: peer for peer in (Sage, Mem0Faiss, Mem0Pgvector, LangGraph, Chroma, PgvectorHnsw, PgvectorExact)
}
_DISTRIBUTIONS = {
    "mem0": "mem0ai",
    "langgraph-checkpoint-postgres": "langgraph-checkpoint-postgres",
    "chromadb": "chromadb",
}


def versions() -> dict[str, str]:
    """Of the products, as they are installed."""
    return {name: version(distribution) for name, distribution in _DISTRIBUTIONS.items()}
