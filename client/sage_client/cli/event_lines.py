"""Events of turns, each as one line for people."""

from __future__ import annotations

import json

from sage_client.cli.output import ACCENT, BAD, GOOD
from sage_client.cli.texts import counted, one_line, seconds
from sage_client.models.events import (
    ToolOutcome,
    TurnAccepted,
    TurnCancelled,
    TurnCompaction,
    TurnDone,
    TurnEvent,
    TurnFailed,
    TurnHandoff,
    TurnMessage,
    TurnRetrieval,
    TurnSilent,
    TurnToolCall,
    TurnToolResult,
    TurnTyping,
)
from sage_client.models.turns import TokenUsage

Parts = list[str | tuple[str, str]]


def parts(event: TurnEvent) -> Parts:
    """What happened. Empty for what is only a sign of life or a piece of something."""
    match event:
        case TurnAccepted():
            said = one_line(event.input.text) if event.input else "(nobody asked)"
            return [(event.agent, ACCENT), " ← ", said]
        case TurnTyping():
            return [f"step {event.step}  {event.model}"]
        case TurnMessage():
            return [("says ", GOOD), one_line(event.text)]
        case TurnToolCall():
            return [("→ ", ACCENT), event.name, f"  {arguments(event.arguments_json)}"]
        case TurnToolResult():
            return result(event)
        case TurnRetrieval():
            return [("⌕ ", ACCENT), f"{len(event.results)} found for ", one_line(event.query)]
        case TurnCompaction() | TurnHandoff() | TurnSilent():
            return _aside(event)
        case TurnDone() | TurnFailed() | TurnCancelled():
            return ended(event)
        case _:
            return []


def result(event: TurnToolResult) -> Parts:
    """How a tool call went; a change of memory says so."""
    if event.outcome is not ToolOutcome.OK:
        return [("✗ ", BAD), f"{event.name} {event.outcome}: ", one_line(event.output)]
    if event.block_id:
        return [("✎ ", GOOD), "core memory changed  ", one_line(event.output)]
    if event.memory_id:
        return [("✎ ", GOOD), f"remembered  {event.memory_id}"]
    return [("✓ ", GOOD), f"{event.name}  ", one_line(event.output)]


def ended(event: TurnDone | TurnFailed | TurnCancelled) -> Parts:
    """The end of a turn, and what it cost."""
    match event:
        case TurnFailed():
            return [("failed ", BAD), f"{event.reason}: {event.message}"]
        case TurnCancelled():
            return [("cancelled", BAD), f" by {event.cause}, {cost(event.usage)}"]
        case _:
            done = f"{counted(event.step_count, 'step')}, {counted(event.tool_call_count, 'tool call')}, "
            limit = f", stopped by its {event.stop_reason}".replace("_", " ")
            hit = event.stop_reason.endswith("_limit")
            return [
                ("done ", GOOD),
                f"{done}{cost(event.usage)}, {seconds(event.duration)}",
                limit if hit else "",
            ]


def cost(usage: TokenUsage) -> str:
    """The tokens of a turn."""
    return f"{usage.prompt_tokens:,}+{usage.completion_tokens:,} tokens"


def arguments(text: str) -> str:
    """A JSON object as `label=human text="sows beans"`."""
    try:
        values = json.loads(text)
    except ValueError:
        return one_line(text)
    if not isinstance(values, dict):
        return one_line(text)
    return "  ".join(
        f"{name}={one_line(json.dumps(value, ensure_ascii=False))}" for name, value in values.items()
    )


def _aside(event: TurnCompaction | TurnHandoff | TurnSilent) -> Parts:
    match event:
        case TurnCompaction(applied=True):
            tokens = f"{event.tokens_before:,} → {event.tokens_after:,} tokens"
            return [f"compacted {counted(event.message_count, 'message')} into a summary, {tokens}"]
        case TurnCompaction():
            return [("✗ ", BAD), f"could not compact: {event.reason}"]
        case TurnHandoff():
            return [("→ ", ACCENT), f"{event.to_agent} works on it ({event.cause})"]
        case _:
            return ["(chose to say nothing)"]
