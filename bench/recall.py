"""How well search finds what was said. The turns of a file go in as messages, its questions are searches.

python -m bench.recall <file>

Everything goes through the real client to a server on default settings in a process of its own, in a
temporary folder. A conversation of the file is a user, a session of it a conversation.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import uvloop

from bench.environment import child
from bench.recall_data import Conversation, DataError, Question, Turn, read
from sage_client import AsyncSageClient, NewItem, connect_async

_SHOWN = (5, 10, 20)
_TIMED = max(_SHOWN)
_DEEPEST = 100
"""As far as a search goes. An answer that comes later counts nothing in the MRR."""
_BATCH = 500
_PATIENCE = 120.0
_CATEGORIES = {"1": "multi-hop", "2": "temporal", "3": "open-domain", "4": "single-hop"}


@dataclass(frozen=True)
class Asked:
    """How one question went."""

    category: str
    recall: Mapping[int, float]
    """The share of the evidence among the first so many results."""
    reciprocal_rank: float
    seconds: float


def main() -> None:
    """Measure, print a table for people, and the figures for machines as the last line."""
    parser = argparse.ArgumentParser(prog="bench.recall", description="How well search finds what was said.")
    parser.add_argument(
        "file", type=Path, help="conversations with questions, as JSON: see docs/benchmarks.md"
    )
    try:
        conversations = read(parser.parse_args().file)
    except DataError as error:
        parser.error(str(error))
    asked = uvloop.run(_measure(conversations))
    print(_table(asked))
    print(json.dumps(_figures(asked)))


async def _measure(conversations: Sequence[Conversation]) -> list[Asked]:
    folder = _folder()
    settings = {
        "SAGE_DATA_DIR": str(folder / "data"),
        "SAGE_LISTEN": "127.0.0.1:0",
        "SAGE_METRICS_LISTEN": "off",
    }
    try:
        log = folder / "server.log"
        async with (
            child((sys.executable, "-m", "sage_server", "serve"), settings, log) as address,
            connect_async(address) as client,
        ):
            asked = []
            for conversation in conversations:
                asked += await _user(client.with_options(user=conversation.id), conversation)
            return asked
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="sage-recall-", dir="/tmp"))
    folder.chmod(0o755)  # the account that runs Postgres must get through
    return folder


async def _user(client: AsyncSageClient, conversation: Conversation) -> list[Asked]:
    items: dict[str, str] = {}
    for session, turns in conversation.sessions().items():
        items |= await _insert(client, session, turns)
    await _indexed(client, conversation)
    _say(f"{conversation.id}: asking {len(conversation.questions)} questions")
    return [
        await _ask(client, question, {items[turn_id] for turn_id in question.evidence if turn_id in items})
        for question in conversation.questions
        if question.evidence
    ]


async def _insert(client: AsyncSageClient, session: str, turns: Sequence[Turn]) -> dict[str, str]:
    """Store a session; answers with the item of each turn."""
    said = [turn for turn in turns if turn.text.strip()]
    created = await client.conversations.create(title=f"Session {session}")
    found: dict[str, str] = {}
    for start in range(0, len(said), _BATCH):
        batch = said[start : start + _BATCH]
        appended = await client.conversations.append(
            created.id,
            [NewItem.user(turn.text, author=turn.speaker, create_time=turn.time) for turn in batch],
        )
        found |= {turn.id: item.id for turn, item in zip(batch, appended, strict=True)}
    return found


async def _indexed(client: AsyncSageClient, conversation: Conversation) -> None:
    """Wait until every message can be found."""
    turns = sum(bool(turn.text.strip()) for turn in conversation.turns)
    pending, since = -1, time.monotonic()
    while True:
        stats = await client.memory.stats()
        if stats.pending_count != pending:
            pending, since = stats.pending_count, time.monotonic()
            _say(f"{conversation.id}: {turns} turns, {pending} of them wait to be indexed")
        if not pending:
            break
        if time.monotonic() - since > _PATIENCE:
            raise RuntimeError(f"indexing stands still, {pending} messages wait")
        await asyncio.sleep(0.2)
    if stats.memory_count < turns:
        _say(f"{conversation.id}: only {stats.memory_count} of {turns} turns can be found")


async def _ask(client: AsyncSageClient, question: Question, evidence: set[str]) -> Asked:
    started = time.perf_counter()
    shown = await client.memory.search(question.text, top_k=_TIMED)
    seconds = time.perf_counter() - started
    # A second search for the rank of what comes later: a hundred results would be no fair time.
    deep = await client.memory.search(question.text, top_k=_DEEPEST)
    first = [result.memory.provenance.item_id for result in shown.results]
    ranks = [result.rank for result in deep.results if result.memory.provenance.item_id in evidence]
    return Asked(
        category=question.category,
        recall={k: len(evidence & set(first[:k])) / len(question.evidence) for k in _SHOWN},
        reciprocal_rank=1 / min(ranks) if ranks else 0.0,
        seconds=seconds,
    )


def _figures(asked: Sequence[Asked]) -> dict[str, float]:
    """In percent, but for the last two."""
    recall = {f"recall_at_{k}": _percent([one.recall[k] for one in asked]) for k in _SHOWN}
    return recall | {
        "mrr": _percent([one.reciprocal_rank for one in asked]),
        "questions": len(asked),
        "search_ms_p50": round(1000 * statistics.median(one.seconds for one in asked), 2),
    }


def _table(asked: Sequence[Asked]) -> str:
    names = sorted({one.category for one in asked})
    heads = "".join(f"{f'R@{k}':>8}" for k in _SHOWN)
    lines = [f"{'category':<14}{'questions':>10}{heads}{'MRR':>8}"]
    groups = [(_CATEGORIES.get(name, name), [one for one in asked if one.category == name]) for name in names]
    for name, group in [*groups, ("all", list(asked))]:
        figures = _figures(group)
        shown = [figures[f"recall_at_{k}"] for k in _SHOWN] + [figures["mrr"]]
        lines.append(f"{name:<14}{len(group):>10}{''.join(f'{figure:>8.1f}' for figure in shown)}")
    return "\n".join(lines)


def _percent(shares: Sequence[float]) -> float:
    return round(100 * statistics.fmean(shares), 1)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


if __name__ == "__main__":
    main()
