"""Which chunks of a document stay, change, come and go."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np

from sage_server.domain.chunks import Chunk
from sage_server.domain.documents import TEXT, Document, DocumentStatus
from sage_server.domain.ids import new_id
from sage_server.domain.memories import Memory, MemoryTrust
from sage_server.engine.document_plan import planned
from sage_server.ports.memories import MemoryBatch, Space, Vector

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LATER = NOW + timedelta(days=1)
SPACE = Space("hash/4", 4)
DOCUMENT = Document(
    id=new_id(NOW),
    title="Trees",
    external_id="trees",
    media_type=TEXT,
    status=DocumentStatus.PROCESSING,
    failure=None,
    chunk_count=0,
    byte_count=1,
    char_count=1,
    tags=("wood",),
    metadata={},
    agent_id=None,
    trust=MemoryTrust.EXTERNAL,
    created_at=NOW,
    updated_at=NOW,
)


def chunks(*texts: str) -> list[Chunk]:
    """One after the other, a line end between them."""
    found: list[Chunk] = []
    start = 0
    for text in texts:
        found.append(Chunk(len(found), start, start + len(text), text))
        start += len(text) + 1
    return found


def stored(*texts: str, model: str = SPACE.model) -> list[MemoryBatch]:
    """The document of these chunks, as it was stored before. The nth vector begins with n."""
    memories = [
        memory._replace(embedding_model=model)
        for memory in planned(DOCUMENT, chunks(*texts), [], SPACE, NOW).unembedded
    ]

    def fill(at: int, room: Vector) -> bool:
        room[:] = [at, 1, 1, 1]
        return True

    return [MemoryBatch(memories, fill, (), 1)]


def test_all_of_a_new_document_needs_vectors() -> None:
    plan = planned(DOCUMENT, chunks("oak", "elm"), [], SPACE, NOW)
    assert [memory.text for memory in plan.unembedded] == ["oak", "elm"]
    assert [memory.provenance.chunk_index for memory in plan.unembedded] == [0, 1]
    assert [memory.provenance.char_start for memory in plan.unembedded] == [0, 4]
    assert {(memory.provenance.origin, memory.tags, memory.trust) for memory in plan.unembedded} == {
        ("Trees", ("wood",), MemoryTrust.EXTERNAL)
    }
    assert (plan.embedded, plan.gone, plan.reused) == ([], [], 0)


def test_what_did_not_change_is_not_written_again() -> None:
    before = stored("oak", "elm")
    plan = planned(DOCUMENT, chunks("oak", "elm"), before, SPACE, LATER)
    assert (plan.embedded, plan.unembedded, plan.gone, plan.reused) == ([], [], [], 2)


def test_a_chunk_that_moved_keeps_its_id_time_and_vector_and_gets_its_new_place() -> None:
    before = stored("oak", "elm")
    old = before[0].memories[1]
    plan = planned(DOCUMENT, chunks("a new beginning", "elm"), before, SPACE, LATER)
    (moved,) = plan.embedded
    assert (moved.memory.id, moved.memory.created_at, moved.memory.updated_at) == (old.id, NOW, LATER)
    assert (moved.memory.provenance.chunk_index, moved.memory.provenance.char_start) == (1, 16)
    assert moved.vector is not None
    assert np.array_equal(moved.vector, [1, 1, 1, 1])
    assert [memory.text for memory in plan.unembedded] == ["a new beginning"]
    assert plan.gone == [before[0].memories[0].id]
    assert plan.reused == 1


def test_another_title_changes_every_chunk_and_no_vector() -> None:
    plan = planned(
        replace(DOCUMENT, title="Wood", tags=()), chunks("oak", "elm"), stored("oak", "elm"), SPACE, LATER
    )
    assert [one.memory.provenance.origin for one in plan.embedded] == ["Wood", "Wood"]
    assert [one.memory.tags for one in plan.embedded] == [(), ()]
    assert (plan.unembedded, plan.gone, plan.reused) == ([], [], 2)


def test_a_chunk_that_changes_and_waits_for_a_vector_gets_one() -> None:
    before = stored("oak", model="")
    plan = planned(replace(DOCUMENT, title="Wood"), chunks("oak"), before, SPACE, LATER)
    assert [memory.id for memory in plan.unembedded] == [before[0].memories[0].id]
    assert (plan.embedded, plan.reused) == ([], 1)


def test_of_two_stored_chunks_with_one_text_one_goes() -> None:
    before = stored("oak", "elm")
    twin: Memory = before[0].memories[0]._replace(id=new_id(LATER))
    before[0] = replace(before[0], memories=[*before[0].memories, twin])
    plan = planned(DOCUMENT, chunks("oak", "elm"), before, SPACE, LATER)
    assert len(plan.gone) == 1
    assert plan.reused == 2
