"""Conversations with questions whose answers are known: the file that `bench.recall` reads.

A JSON list of `{"id", "turns": [{"id", "session", "time", "speaker", "text"}], "questions": [{"question",
"category", "evidence": [ids of turns]}]}`. `time` is ISO 8601 or null.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


class DataError(Exception):
    """The file cannot be used. The message says where and why."""


@dataclass(frozen=True)
class Turn:
    """What somebody said."""

    id: str
    session: str
    time: datetime | None
    speaker: str
    text: str


@dataclass(frozen=True)
class Question:
    """A question, and the turns that answer it."""

    text: str
    category: str
    evidence: frozenset[str]


@dataclass(frozen=True)
class Conversation:
    """All that one user has said and heard."""

    id: str
    turns: Sequence[Turn]
    questions: Sequence[Question]

    def sessions(self) -> dict[str, list[Turn]]:
        """The turns by session, both in the order of the file."""
        found: dict[str, list[Turn]] = {}
        for turn in self.turns:
            found.setdefault(turn.session, []).append(turn)
        return found


def read(path: Path) -> list[Conversation]:
    """The conversations of a file. Raises DataError."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise DataError(f"{path}: not JSON in UTF-8 ({error})") from None
    if not isinstance(found, list) or not found:
        raise DataError(f"{path}: expected a JSON list of conversations")
    conversations = []
    for number, one in enumerate(found):
        try:
            conversations.append(_conversation(one))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"no {error}" if isinstance(error, KeyError) else error
            raise DataError(f"{path}: conversation {number}: {what}") from None
    if len({one.id for one in conversations}) < len(conversations):
        raise DataError(f"{path}: two conversations with one id")
    if not any(question.evidence for one in conversations for question in one.questions):
        raise DataError(f"{path}: no question has evidence among the turns")
    return conversations


def _conversation(found: Mapping[str, Any]) -> Conversation:
    turns = [_turn(turn) for turn in found["turns"]]
    known = {turn.id for turn in turns}
    if len(known) < len(turns):
        raise ValueError("two turns with one id")
    questions = [
        Question(
            str(question["question"]),
            str(question.get("category", "")),
            # A name that no turn has cannot be found by anybody.
            frozenset(str(turn_id) for turn_id in question["evidence"] if str(turn_id) in known),
        )
        for question in found["questions"]
    ]
    return Conversation(str(found["id"]), turns, questions)


def _turn(found: Mapping[str, Any]) -> Turn:
    time = found.get("time")
    return Turn(
        id=str(found["id"]),
        session=str(found["session"]),
        time=None if time is None else _time(time),
        speaker=str(found["speaker"]),
        text=str(found["text"]),
    )


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    return time if time.tzinfo is not None else time.replace(tzinfo=UTC)
