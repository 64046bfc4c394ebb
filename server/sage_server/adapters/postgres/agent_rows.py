"""Rows of `agents`: how they are sealed and opened."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter

from sage_server.adapters.postgres.database import Record
from sage_server.adapters.postgres.schema import agents, cell, conversations
from sage_server.domain.agents import Agent, AgentProfile, MemoryMode
from sage_server.ports.keys import UserCipher

NAME_TAG = cell(agents.c.name_tag)
_PROFILE = cell(agents.c.profile_enc)
_PROFILES = TypeAdapter(AgentProfile)
_AGENTS = TypeAdapter(Agent)

AGENT_COLUMNS = (
    *(column for column in agents.c if column not in (agents.c.user_id, agents.c.name_tag)),
    conversations.c.message_count,
)


def agent_values(cipher: UserCipher, user_id: UUID, agent: Agent) -> dict[str, Any]:
    """Every column of an agent. All cells are sealed anew: a row has one key version."""
    return {
        "user_id": user_id,
        "id": agent.id,
        "conversation_id": agent.conversation_id,
        "name_tag": cipher.tag(NAME_TAG, agent.name),
        "profile_enc": cipher.seal(_PROFILE, agent.id, _PROFILES.dump_json(_plain(agent.profile))),
        "enabled": agent.enabled,
        "memory_mode": agent.memory_mode,
        "version": agent.version,
        "created_at": agent.created_at,
        "updated_at": agent.updated_at,
        "last_turn_at": agent.last_turn_at,
        "key_version": cipher.key_version,
    }


def opened_agent(cipher: UserCipher, row: Record) -> Agent:
    """A row of AGENT_COLUMNS."""
    return Agent(
        id=row["id"],
        conversation_id=row["conversation_id"],
        profile=_PROFILES.validate_json(cipher.open(_PROFILE, row["id"], row["profile_enc"])),
        enabled=row["enabled"],
        memory_mode=MemoryMode(row["memory_mode"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        version=row["version"],
        message_count=row["message_count"],
        last_turn_at=row["last_turn_at"],
    )


def agent_answer(agent: Agent) -> object:
    """An agent just created, as the answer kept for its request id."""
    return _AGENTS.dump_python(replace(agent, profile=_plain(agent.profile)), mode="json")


def answered_agent(answer: object) -> Agent:
    """The agent of a kept answer."""
    return _AGENTS.validate_python(answer)


def _plain(profile: AgentProfile) -> AgentProfile:
    """As JSON can be written of it: a mapping that is no dict is none."""
    return replace(profile, preferences=dict(profile.preferences))
