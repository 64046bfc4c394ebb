"""What an agent would be sent, and what it may call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from sage_server.domain.agents import CompactionMode
from sage_server.domain.conversations import Item, ItemKind
from sage_server.domain.errors import Reason, SageError, not_found
from sage_server.domain.ids import new_id
from sage_server.domain.paging import Page
from sage_server.engine.prompt_window import Section
from sage_server.engine.tools.toolbox import OfferedTool, Toolbox
from sage_server.engine.turns.compaction import is_due
from sage_server.engine.turns.contexts import Contexts
from sage_server.ports.agents import AgentStore
from sage_server.ports.clock import Clock
from sage_server.ports.language_model import LanguageModels, Purpose
from sage_server.ports.stores import ConversationStore
from sage_server.ports.tokens import TokenCounter


@dataclass(frozen=True)
class ContextPreview:
    """The context that a next turn would send."""

    sections: Sequence[Section]
    token_count: int
    max_context_tokens: int
    compaction_tokens: int
    would_compact: bool
    model: str
    tokenizer: str
    first_time: bool


class AgentContexts:
    """Shows contexts and tools. Calls no model and stores nothing."""

    def __init__(
        self,
        *,
        agents: AgentStore,
        threads: ConversationStore,
        contexts: Contexts,
        toolbox: Toolbox,
        models: LanguageModels,
        tokens: TokenCounter,
        clock: Clock,
    ) -> None:
        self._agents = agents
        self._threads = threads
        self._contexts = contexts
        self._toolbox = toolbox
        self._models = models
        self._tokens = tokens
        self._clock = clock

    async def preview(
        self, user_id: UUID, agent: str, conversation_id: UUID | None, text: str
    ) -> ContextPreview:
        """The context of the next turn, in the agent's own thread or another, if this were the message."""
        found = await self._agents.get(user_id, agent)
        if conversation_id is not None and (
            (await self._threads.get(user_id, conversation_id)).deleted_at is not None
        ):
            raise not_found("conversation")
        thread = conversation_id or found.conversation_id
        transcript = await self._contexts.transcript(user_id, found, thread, None)
        if text:
            transcript = self._contexts.with_input(transcript, self._message(thread, text))
        context = await self._contexts.build(user_id, found, transcript, self._clock.now())
        profile, window = found.profile, context.window
        tokens_mode = profile.compaction.mode is CompactionMode.TOKENS
        limit = profile.compaction.threshold if tokens_mode else 1.0
        return ContextPreview(
            sections=window.sections,
            token_count=window.token_count,
            max_context_tokens=profile.max_context_tokens,
            compaction_tokens=int(limit * profile.max_context_tokens),
            would_compact=is_due(found, transcript, context),
            model=self._model(profile.model),
            tokenizer=self._tokens.name,
            first_time=context.first_time,
        )

    async def tools(self, user_id: UUID, agent: str, size: int, after: str | None) -> Page[OfferedTool, str]:
        """A page of the agent's tools by name, those that are switched off too."""
        found = await self._agents.get(user_id, agent)
        offered = await self._toolbox.offered(user_id, found)
        rest = [tool for tool in offered if after is None or tool.name > after]
        return Page(rest[:size], rest[size - 1].name if len(rest) > size else None)

    def _model(self, name: str) -> str:
        """The name of the model that would be asked; empty if there is none to ask."""
        try:
            return self._models.get(name, Purpose.CHAT).name
        except SageError as error:
            if error.reason not in (Reason.MODEL_NOT_CONFIGURED, Reason.MODEL_UNKNOWN):
                raise
            return ""

    def _message(self, thread: UUID, text: str) -> Item:
        now = self._clock.now()
        return Item(
            id=new_id(now),
            conversation_id=thread,
            seq=0,
            kind=ItemKind.USER,
            text=text,
            author="",
            token_count=self._tokens.count(text),
            created_at=now,
        )
