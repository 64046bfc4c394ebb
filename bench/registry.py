"""Every benchmark. A new one is a file with `run` and a line here."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from bench import (
    append_items,
    cold_load,
    get_conversation,
    index_growth,
    index_memory,
    insert_memories,
    list_conversations,
    search_memories,
    turns,
)
from bench.environment import Environment
from bench.result import Result

Benchmark: TypeAlias = Callable[[Environment], Awaitable[list[Result]]]

BENCHMARKS: dict[str, Benchmark] = {
    "get_conversation": get_conversation.run,
    "append_items": append_items.run,
    "list_conversations": list_conversations.run,
    "search_memories": search_memories.run,
    "insert_memories": insert_memories.run,
    "cold_load": cold_load.run,
    "index_memory": index_memory.run,
    "index_growth": index_growth.run,
    "turns": turns.run,
}
