"""Asking the model for a step, and making sense of what it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from sage_server.domain.errors import Reason, SageError
from sage_server.domain.events import Delta
from sage_server.domain.model_output import ModelOutput, Unreadable
from sage_server.domain.usage import UsagePurpose
from sage_server.engine.model_calls import Spending, asked
from sage_server.engine.model_output.correction import correction_prompt
from sage_server.engine.model_output.deltas import MessageDeltas
from sage_server.engine.model_output.parsing import read_output
from sage_server.engine.model_output.prose import is_prose, prose_output
from sage_server.engine.model_output.reasoning import ReasoningFilter, without_reasoning
from sage_server.engine.model_output.schema import output_schema
from sage_server.engine.prompt_window import Window
from sage_server.engine.tools.toolbox import OfferedTool
from sage_server.ports.language_model import LanguageModel, Piece, Prompt, Reply, Restarted

Show = Callable[[Delta], None]
_LONG = 100_000
"""Characters that are read in some hundredths of a second, at worst."""


async def thought(
    model: LanguageModel,
    window: Window,
    tools: Sequence[OfferedTool],
    spending: Spending,
    show: Show | None = None,
) -> ModelOutput:
    """What the model says and wants to do. `show` is told its words while it writes them.

    An answer that cannot be read is sent back once, to be put into shape; if that fails too, plain prose is
    taken for a message. Raises MODEL_OUTPUT_INVALID, and what LanguageModel.ask raises.
    """
    schema = output_schema([(tool.name, tool.schema) for tool in tools if tool.enabled])
    prompt = Prompt(window.messages, schema)
    hear = None if show is None else _heard(show)
    raw = without_reasoning((await asked(model, prompt, UsagePurpose.STEP, spending, hear)).text)
    output = await _read(raw)
    if isinstance(output, ModelOutput):
        return output
    try:
        shaped = await asked(model, correction_prompt(raw, schema), UsagePurpose.CORRECTION, spending)
        output = await _read(without_reasoning(shaped.text))
        if isinstance(output, Unreadable) or not (output.messages or output.tool_calls):
            # There was something to put into shape: nothing is not what came of it.
            raise _unreadable(model.name)
    except SageError:
        if not is_prose(raw):
            raise
        return prose_output(raw)
    return output


async def _read(raw: str) -> ModelOutput | Unreadable:
    """A long answer in a thread, so that nobody else waits while it is taken apart."""
    return read_output(raw) if len(raw) <= _LONG else await asyncio.to_thread(read_output, raw)


def _heard(show: Show) -> Callable[[Reply], None]:
    deltas, answer = MessageDeltas(), ReasoningFilter()

    def hear(reply: Reply) -> None:
        if isinstance(reply, Restarted):
            deltas.reset()
            answer.reset()
        elif isinstance(reply, Piece):
            for delta in deltas.feed(answer.feed(reply.text)):
                show(delta)

    return hear


def _unreadable(model: str) -> SageError:
    return SageError(
        Reason.MODEL_OUTPUT_INVALID, "The model's output could not be read.", metadata={"model": model}
    )
