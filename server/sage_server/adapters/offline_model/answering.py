"""A step of a turn: first the tools, then what came of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sage_server.adapters.offline_model.prompt_reading import Situation, ToolAnswer
from sage_server.adapters.offline_model.quotes import Quote, block_quotes, chosen, noted_line, search_quotes
from sage_server.adapters.offline_model.sentences import Kind, Sentence, read_sentences
from sage_server.domain.model_output import MAX_CALLS

NOTICE = (
    "No language model is configured. I am Sage's offline model: I keep what you tell me, and answer "
    "questions with nothing but what I find in your memory. For a language model, start the server with "
    "SAGE_LLM_BASE_URL (any server with OpenAI's protocol), OPENAI_API_KEY, or SAGE_LLM_GGUF (a model file)."
)
FORGETTING = (
    "I have no rule for forgetting, and kept nothing of that. `sage memory list` shows what is kept and "
    "`sage memory delete` removes it; `/undo` in `sage chat` takes back the last edit of core memory; "
    "`sage erase` removes everything."
)
_HUMAN = "human"
_APPEND, _INSERT = "memory_append", "archival_insert"
_SEARCHES = ("archival_search", "conversation_search")
_WELL = ("Done.", "Kept.", "The block is as it was.")
_FOUND = 10
_MOST_LISTED = 20
_MOST_CALLS = 3 * MAX_CALLS
"""In a turn: about as many changes of memory as one may make."""
_LONGEST_QUERY = 1_000
_LOOKED_UP = frozenset({Kind.QUESTION, Kind.OVERVIEW})
_KEPT_KINDS = frozenset({Kind.ABOUT_USER, Kind.REMEMBER, Kind.STATEMENT})


@dataclass(frozen=True)
class Call:
    """A tool to call."""

    name: str
    arguments: Mapping[str, object]

    @property
    def about(self) -> tuple[str, object]:
        """What two calls for the same purpose have in common."""
        return self.name, self.arguments.get("text", self.arguments.get("query"))


@dataclass(frozen=True)
class Answer:
    """What the model says and calls."""

    messages: Sequence[str] = ()
    calls: Sequence[Call] = ()

    def as_json(self) -> str:
        """In the format that every model is asked for."""
        calls = [{"name": call.name, "args": dict(call.arguments)} for call in self.calls]
        return json.dumps({"messages": list(self.messages), "tool_calls": calls}, ensure_ascii=False)


def answered(situation: Situation) -> Answer:
    """The next step. Without a message of the user's there is nothing to say."""
    message = situation.message
    if message is None:
        return Answer()
    sentences = read_sentences(message)
    calls = _calls_left(sentences, situation)
    if calls:
        return Answer(calls=calls)
    told = dict.fromkeys(_told(sentence, situation) for sentence in sentences)
    report = "\n".join(line for line in told if line)
    asked = any(sentence.kind is Kind.ABOUT_MODEL for sentence in sentences)
    notice = [NOTICE] if asked or _is_news(situation) else []
    said = [*notice, report] if report else notice
    return Answer(said or ["I found nothing in that to keep or to look up."])


def _is_news(situation: Situation) -> bool:
    """Whether this conversation has not been told yet who answers."""
    told = any(
        NOTICE in line.text for line in (*situation.before, *situation.now) if line.role == "assistant"
    )
    return not told and not situation.summarised


def _calls_left(sentences: Sequence[Sentence], situation: Situation) -> list[Call]:
    """What is still to be called for the message, as much of it as one step may call."""
    made = [_made(answer).about for answer in situation.tool_answers]
    room = max(0, min(MAX_CALLS, _MOST_CALLS - len(made)))
    left: dict[tuple[str, object], Call] = {}
    for sentence in sentences:
        if len(left) >= room:
            break
        left |= {call.about: call for call in _calls(sentence, situation) if call.about not in made}
    return list(left.values())[:room]


def _made(answer: ToolAnswer) -> Call:
    return Call(answer.tool, answer.arguments)


def _calls(sentence: Sentence, situation: Situation) -> list[Call]:
    if sentence.kind in _LOOKED_UP:
        query = sentence.text[:_LONGEST_QUERY]
        offered = [name for name in _SEARCHES if name in situation.tools]
        return [Call(name, {"query": query, "limit": _FOUND}) for name in offered]
    if sentence.kind not in _KEPT_KINDS or _is_known(sentence, situation):
        return []
    note = Call(_APPEND, {"label": _HUMAN, "text": noted_line(situation.today, sentence.text)})
    if sentence.kind is Kind.ABOUT_USER and _APPEND in situation.tools and _takes(note, situation):
        return [note]
    return [Call(_INSERT, {"text": sentence.text})] if _INSERT in situation.tools else []


def _told(sentence: Sentence, situation: Situation) -> str:
    """What came of a sentence."""
    if sentence.kind is Kind.FORGET:
        return FORGETTING
    if sentence.kind is Kind.OVERVIEW:
        return _known(sentence.text, situation)
    if sentence.kind is Kind.QUESTION:
        return _replied(sentence.text, situation)
    if sentence.kind not in _KEPT_KINDS:
        return ""
    for answer in reversed(situation.tool_answers):
        kept = answer.arguments.get("text")
        if answer.tool == _INSERT and kept == sentence.text:
            return _reported(answer, "archival memory", sentence.text)
        if answer.tool == _APPEND and kept == noted_line(situation.today, sentence.text):
            return _reported(answer, f"core memory ({_HUMAN})", sentence.text)
    if _is_known(sentence, situation):
        return f"Already in core memory ({_HUMAN}): “{sentence.text}”"
    if len(situation.tool_answers) >= _MOST_CALLS:
        return (
            "Not all of it is kept: it was more than I can do at once. Tell me the rest in another message."
        )
    return "I have no tool here to keep that with."


def _reported(answer: ToolAnswer, place: str, text: str) -> str:
    if answer.output.startswith(_WELL):
        return f"Kept in {place}: “{text}”"
    return f"Not kept: {answer.output}"


def _replied(question: str, situation: Situation) -> str:
    """Quotations, or that there are none."""
    found = _found(question, situation)
    choice = chosen(question, [*block_quotes(situation.blocks), *found])
    if not choice.close:
        choice = chosen(question, found)
    if not choice.quotes:
        return f"I found nothing in your memory about “{question}”"
    title = "From your memory:" if choice.close else "Nothing has those words. Nearest in meaning:"
    return "\n".join([title, *(f"- {quote}" for quote in choice.quotes)])


def _known(question: str, situation: Situation) -> str:
    """All of core memory that is about the user; where there is nothing of it, what a search found."""
    quotes = block_quotes(situation.blocks)[:_MOST_LISTED] or list(
        chosen("", _found(question, situation)).quotes
    )
    if not quotes:
        return "I know nothing about you yet."
    listed = "\n".join(f"- {quote}" for quote in quotes)
    more = "There may be more in archival memory. Ask about something in particular."
    return f"From your memory:\n{listed}\n{more}"


def _found(question: str, situation: Situation) -> list[Quote]:
    """What the searches for it found."""
    outputs = [
        answer.output
        for answer in situation.tool_answers
        if answer.tool in _SEARCHES and answer.arguments.get("query") == question[:_LONGEST_QUERY]
    ]
    return [quote for output in outputs for quote in search_quotes(output)]


def _is_known(sentence: Sentence, situation: Situation) -> bool:
    return sentence.kind is Kind.ABOUT_USER and any(
        quote.text == sentence.text for quote in block_quotes(situation.blocks)
    )


def _takes(note: Call, situation: Situation) -> bool:
    """Whether there is a core block for it that has not refused it: a full one does."""
    writable = any(block.label == _HUMAN and not block.read_only for block in situation.blocks)
    return writable and not any(
        _made(answer).about == note.about and not answer.output.startswith(_WELL)
        for answer in situation.tool_answers
    )
