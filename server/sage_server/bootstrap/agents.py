"""What a user's agents are built of."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from sage_server.adapters.postgres.agents import PostgresAgentStore
from sage_server.adapters.postgres.database import Database
from sage_server.adapters.postgres.overlays import PostgresOverlayStore
from sage_server.domain.agents import TurnLimits
from sage_server.engine.agent_vectors import AgentVectors
from sage_server.engine.memory_writer import MemoryWriter
from sage_server.engine.usage import UsageMeter
from sage_server.ports.clock import Clock
from sage_server.ports.embedding import Embedders
from sage_server.ports.keys import KeyRing
from sage_server.ports.language_model import LanguageModels
from sage_server.ports.transcripts import TranscriptStore
from sage_server.rpc.agent_mapping import AgentMapping
from sage_server.rpc.agent_servicer import AgentServicer
from sage_server.rpc.memory_tokens import MemoryTokens
from sage_server.rpc.overlay_servicer import OverlayServicer
from sage_server.rpc.page_tokens import PageTokens
from sage_server.services.agents import Agents, Publish
from sage_server.services.overlays import Overlays


@dataclass(frozen=True)
class AgentParts:
    """What the rest of the application needs of it."""

    store: PostgresAgentStore
    vectors: AgentVectors
    servicers: list[object]


@dataclass(frozen=True)
class AgentNeeds:
    """What it is built on."""

    database: Database
    keys: KeyRing
    clock: Clock
    embedders: Embedders
    usage: UsageMeter
    writer: MemoryWriter
    transcripts: TranscriptStore
    models: LanguageModels
    tool_names: Collection[str]
    publish: Publish
    limits: TurnLimits
    pages: PageTokens


def build_agents(needs: AgentNeeds) -> AgentParts:
    """Stores, services and servicers of the agents themselves and of their overlays."""
    store = PostgresAgentStore(needs.database, needs.keys)
    vectors = AgentVectors(needs.embedders, needs.usage)
    agents = Agents(
        agents=store,
        transcripts=needs.transcripts,
        writer=needs.writer,
        vectors=vectors,
        models=needs.models,
        tool_names=needs.tool_names,
        publish=needs.publish,
        clock=needs.clock,
    )
    overlays = Overlays(
        overlays=PostgresOverlayStore(needs.database, needs.keys),
        agents=store,
        writer=needs.writer,
        clock=needs.clock,
    )
    mapping = AgentMapping(needs.limits)
    tokens = MemoryTokens(needs.keys)
    return AgentParts(
        store=store,
        vectors=vectors,
        servicers=[
            AgentServicer(agents, mapping, needs.pages, tokens),
            OverlayServicer(overlays, needs.pages, tokens),
        ],
    )
