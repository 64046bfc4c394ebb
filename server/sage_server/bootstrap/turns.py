"""What turns are built of."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from sage_server.adapters.postgres.agents import PostgresAgentStore
from sage_server.adapters.postgres.conversations import PostgresConversationStore
from sage_server.adapters.postgres.database import Database
from sage_server.adapters.postgres.turns import PostgresTurnStore
from sage_server.bootstrap.events import EventParts
from sage_server.bootstrap.memory import MemoryParts
from sage_server.domain.agents import TurnLimits
from sage_server.engine.compactor import Compactor
from sage_server.engine.failpoints import Failpoints
from sage_server.engine.prompt_window import PromptWindow
from sage_server.engine.tools.blocks import MemoryAppend, MemoryInsert, MemoryReplace
from sage_server.engine.tools.memories import ArchivalInsert, ArchivalSearch, ConversationSearch
from sage_server.engine.tools.notes import EndTurn, ScratchpadClear, ScratchpadRead, ScratchpadWrite
from sage_server.engine.tools.toolbox import AnyTool, Toolbox
from sage_server.engine.tools.web import FetchPage, WebSearch
from sage_server.engine.turn_streams import TurnStreams
from sage_server.engine.turns.compaction import Compaction
from sage_server.engine.turns.contexts import Contexts
from sage_server.engine.turns.execution import TurnExecution, TurnParts
from sage_server.engine.turns.tool_work import ToolWork
from sage_server.engine.usage import UsageMeter
from sage_server.ports.clock import Clock
from sage_server.ports.flags import Flags
from sage_server.ports.keys import KeyRing
from sage_server.ports.language_model import LanguageModels
from sage_server.ports.tokens import TokenCounter
from sage_server.ports.transcripts import SummaryStore, TranscriptStore
from sage_server.ports.web import WebAccess
from sage_server.rpc.memory_tokens import MemoryTokens
from sage_server.rpc.page_tokens import PageTokens
from sage_server.rpc.turn_servicer import RespondServicer, TurnServicer
from sage_server.services.agent_contexts import AgentContexts
from sage_server.services.turns import Turns
from sage_server.settings import Settings
from sage_server.workers.loops import Loop
from sage_server.workers.turns import TurnWorkers

_RECOVER_EVERY = 1.0
_RENEWALS = 3
"""How often a lease is renewed before it would run out."""


@dataclass(frozen=True)
class TurnNeeds:
    """What it is built on."""

    settings: Settings
    database: Database
    keys: KeyRing
    clock: Clock
    tokens: TokenCounter
    owner: UUID
    """This process, as leases name it."""
    models: LanguageModels
    flags: Flags
    usage: UsageMeter
    agents: PostgresAgentStore
    conversations: PostgresConversationStore
    transcripts: TranscriptStore
    summaries: SummaryStore
    compactor: Compactor
    memory: MemoryParts
    events: EventParts
    toolbox: Toolbox
    limits: TurnLimits
    pages: PageTokens


@dataclass(frozen=True)
class BuiltTurns:
    """What the rest of the application needs of it."""

    store: PostgresTurnStore
    service: Turns
    workers: TurnWorkers
    servicers: list[object]
    responders: list[object]
    """What ConversationService has of turns."""
    loops: list[Loop]


def build_toolbox(settings: Settings, memory: MemoryParts, web: WebAccess | None, flags: Flags) -> Toolbox:
    """Every tool that this server has."""
    tools: list[AnyTool] = [
        MemoryAppend(),
        MemoryReplace(),
        MemoryInsert(),
        ArchivalInsert(),
        ArchivalSearch(memory.search),
        ConversationSearch(memory.search),
        ScratchpadRead(memory.scratchpads),
        ScratchpadWrite(),
        ScratchpadClear(),
        EndTurn(),
    ]
    if web is not None and web.can_search:
        tools.append(WebSearch(web.web))
    if web is not None and web.can_fetch:
        tools.append(FetchPage(web.web))
    return Toolbox(tools, flags, settings.tools_need_user_names)


def build_turns(needs: TurnNeeds) -> BuiltTurns:
    """Store, engine, workers, services and servicers of turns."""
    settings, clock, memory, flags = needs.settings, needs.clock, needs.memory, needs.flags
    failpoints = Failpoints(settings.failpoint)
    store = PostgresTurnStore(
        needs.database,
        needs.keys,
        needs.conversations,
        owner=needs.owner,
        lease=timedelta(seconds=settings.turn_lease),
        failpoints=failpoints.reach,
    )
    contexts = Contexts(
        agents=needs.agents,
        transcripts=needs.transcripts,
        blocks=memory.blocks,
        scratchpads=memory.scratchpads,
        memories=memory.store,
        indexes=memory.indexes,
        toolbox=needs.toolbox,
        window=PromptWindow(needs.tokens),
    )
    execution = TurnExecution(
        TurnParts(
            store=store,
            agents=needs.agents,
            contexts=contexts,
            compaction=Compaction(
                compactor=needs.compactor,
                transcripts=needs.transcripts,
                contexts=contexts,
                flags=flags,
                clock=clock,
                failpoints=failpoints,
            ),
            models=needs.models,
            work=ToolWork(needs.toolbox, memory.writer, needs.tokens),
            writer=memory.writer,
            hub=needs.events.hub,
            flags=flags,
            usage=needs.usage,
            clock=clock,
            limits=needs.limits,
            failpoints=failpoints,
        )
    )
    workers = TurnWorkers(
        execution=execution,
        store=store,
        flags=flags,
        clock=clock,
        most=settings.max_turns,
        failpoints=failpoints,
    )
    turns = Turns(
        store=store,
        agents=needs.agents,
        threads=needs.conversations,
        models=needs.models,
        flags=flags,
        hub=needs.events.hub,
        streams=TurnStreams(needs.events.hub, needs.events.store, store),
        host=workers,
        tokens=needs.tokens,
        clock=clock,
        failpoints=failpoints,
    )
    previews = AgentContexts(
        agents=needs.agents,
        threads=needs.conversations,
        contexts=contexts,
        toolbox=needs.toolbox,
        models=needs.models,
        tokens=needs.tokens,
        clock=clock,
    )
    tokens = MemoryTokens(needs.keys)
    return BuiltTurns(
        store=store,
        service=turns,
        workers=workers,
        servicers=[TurnServicer(turns, previews, needs.events.messages, needs.pages, tokens)],
        responders=[RespondServicer(turns, needs.events.messages)],
        loops=[
            Loop("turn-leases", settings.turn_lease / _RENEWALS, workers.renew),
            Loop("turn-recovery", _RECOVER_EVERY, workers.recover),
        ],
    )
