"""One user's memories, ready to be searched.

    H     = vector_weight * minmax(cosine) + text_weight * minmax(bm25)
    score = H + neighbours + author + date + session        (the last four for messages only)

All that passes the filters is scored, always: an exact scan reads every vector anyway, and then the rest
is cheap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

import numpy as np
import numpy.typing as npt

from sage_server.domain.memories import Memory, MemorySource
from sage_server.domain.search import Scored
from sage_server.engine.memory_index.attributes import Attributes
from sage_server.engine.memory_index.evidence import surroundings
from sage_server.engine.memory_index.keywords import Keywords
from sage_server.engine.memory_index.query import Found, IndexQuery
from sage_server.engine.memory_index.ranking import Range, Scores, highest
from sage_server.engine.memory_index.vectors import Floats, Rows, Vectors
from sage_server.engine.memory_index.words import Words
from sage_server.ports.memories import Fill

_ENTRY_BYTES = 700  # a Memory with its ids, times and place in the tables, beside its text
_FEW_DEAD = 1_000
_CHARACTER_WORK = 400
_POSTING_WORK = 64


class UserIndex:
    """Vectors, words and attributes in the same row order. Not safe for use by several threads at once."""

    def __init__(self, words: Words, dimensions: int) -> None:
        self.revision = 0
        self._words = words
        self._memories: list[Memory | None] = []
        self._row_of: dict[UUID, int] = {}
        self._vectors = Vectors(dimensions)
        self._keywords = Keywords(words)
        self._attributes = Attributes()
        self._unsettled: list[str] = []
        self._text_bytes = 0
        self._rows: Rows = np.arange(0)

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def dimensions(self) -> int:
        """Of the vectors."""
        return self._vectors.dimensions

    @property
    def bytes(self) -> int:
        """Memory that the index takes, about."""
        held = self._vectors.bytes + self._keywords.bytes + self._attributes.bytes
        return held + self._text_bytes + _ENTRY_BYTES * len(self._row_of)

    def work(self, query: IndexQuery) -> int:
        """How much a search takes, as numbers of vectors that could be read instead. Itself it takes no more
        than cutting the text into words."""
        postings = self._keywords.postings(self._words.spelled(query.text))
        vectors = len(self._vectors) * self.dimensions
        return vectors + _CHARACTER_WORK * len(query.text) + _POSTING_WORK * postings

    def counts(self) -> dict[MemorySource, int]:
        """How many memories there are of each source."""
        live = self._attributes.column("source")[self._attributes.column("live")]
        found = np.bincount(live, minlength=max(MemorySource) + 1).tolist()
        return {source: found[source] for source in MemorySource}

    def has_conversation(self, conversation_id: UUID) -> bool:
        """Whether there is a memory of the conversation, and it is not an agent's own thread."""
        attributes = self._attributes
        return attributes.holds("conversation", conversation_id) and not attributes.is_own_thread(
            conversation_id
        )

    def has_document(self, document_id: UUID) -> bool:
        """Whether there is a memory of the document."""
        return self._attributes.holds("document", document_id)

    def weight(self, word: str) -> float:
        """How much a word of a question says about this user's memories."""
        return self._keywords.weight(word)

    def add(self, memories: Sequence[Memory], fill: Fill, *, settled: bool = True) -> None:
        """Add memories. One that is there already is replaced. If `fill` fails, nothing has changed.

        With `settled` false the words wait for `settle`, and the index must not be used before: a load adds
        all words at once, in a fraction of the time.
        """
        first = len(self._memories)
        embedded = self._filled(len(memories), fill)
        for memory in memories:
            self.remove(memory.id)
        self._unsettled += [memory.text for memory in memories]
        if settled:
            self._add_words()
        self._attributes.add(memories, embedded)
        self._memories.extend(memories)
        self._row_of.update((memory.id, row) for row, memory in enumerate(memories, first))
        self._text_bytes += sum(_text_bytes(memory) for memory in memories)

    def remove(self, memory_id: UUID) -> bool:
        """Forget a memory. False if it is not there."""
        row = self._row_of.pop(memory_id, None)
        if row is None:
            return False
        memory = self._memories[row]
        assert memory is not None
        self._memories[row] = None
        self._vectors.clear(row)
        self._keywords.remove(memory.text)
        self._attributes.clear(row, memory)
        self._text_bytes -= _text_bytes(memory)
        return True

    @property
    def sparse(self) -> bool:
        """Whether enough rows are dead for `compacted` to pay."""
        dead = len(self._memories) - len(self._row_of)
        return dead > _FEW_DEAD and dead * 3 > len(self._row_of)

    def settle(self) -> None:
        """Do now what the next search would do first, so that searches only read."""
        self._add_words()
        self._attributes.order()

    def compacted(self) -> UserIndex:
        """The same without dead rows. Reads only."""
        live = np.flatnonzero(self._attributes.column("live"))
        memories = [memory for memory in self._memories if memory is not None]
        index = UserIndex(self._words, self.dimensions)
        index.revision = self.revision
        index._memories.extend(memories)
        index._row_of.update((memory.id, row) for row, memory in enumerate(memories))
        index._vectors = self._vectors.only(live)
        index._keywords = self._keywords.only(live)
        index._attributes.add(memories, self._attributes.column("embedded")[live].tolist())
        index._text_bytes = self._text_bytes
        return index

    def search(self, query: IndexQuery) -> Found:
        """The best memories, the best first; equally good ones, the newer first."""
        mask = self._attributes.mask(query.which)
        rows = self._every_row() if mask is None else np.flatnonzero(mask)
        if not len(rows):
            return Found([], 0, self.revision)
        spelled = self._words.spelled(query.text)
        cosine, embedded = self._cosine(query, rows, whole=mask is None)
        bm25 = self._keywords.scores(spelled, mask)
        if mask is not None:
            bm25 = bm25[rows]
        near, said = Range.of(cosine, embedded), Range.of(bm25, None)
        hybrid = near.spread(cosine, query.vector_weight)
        if embedded is not None:
            hybrid[~embedded] = 0.0
        hybrid += said.spread(bm25, query.text_weight)
        around = surroundings(self._attributes, query.text, rows, hybrid) if query.context_evidence else None
        score = hybrid if around is None else around.added_to(hybrid)
        best = self._best(query, rows, score)
        matched = self._matched(spelled, rows[best])
        vector_scores, text_scores = cosine[best].tolist(), bm25[best].tolist()
        results = []
        for at, terms, vector_score, text_score in zip(
            best, matched, vector_scores, text_scores, strict=True
        ):
            memory = self._memories[rows[at]]
            assert memory is not None
            has_vector = embedded is None or bool(embedded[at])
            results.append(
                Scored(
                    memory=memory,
                    score=float(score[at]),
                    hybrid=float(hybrid[at]),
                    vector_score=vector_score if has_vector else None,
                    text_score=text_score,
                    normalized_vector=near.place(vector_score) if has_vector else 0.0,
                    normalized_text=said.place(text_score),
                    matched_terms=terms,
                    evidence=None if around is None else around.of(at, memory),
                )
            )
        return Found(results, len(rows), self.revision)

    def _add_words(self) -> None:
        if self._unsettled:
            self._keywords.add(self._unsettled)
            self._unsettled = []

    def _filled(self, count: int, fill: Fill) -> list[bool]:
        """Add vectors; answers with which rows have one."""
        first = len(self._vectors)
        embedded: list[bool] = []
        try:
            for block in self._vectors.extend(count):
                embedded += [fill(len(embedded) + n, out) for n, out in enumerate(block)]
        except BaseException:  # whatever it was, the rows must stay in step
            self._vectors.cut(first)
            raise
        return embedded

    def _every_row(self) -> Rows:
        if len(self._rows) != len(self._memories):
            self._rows = np.arange(len(self._memories))
        return self._rows

    def _cosine(
        self, query: IndexQuery, rows: Rows, *, whole: bool
    ) -> tuple[Floats, npt.NDArray[np.bool_] | None]:
        """The cosine of each candidate, and which of them have a vector; None if all have."""
        if query.vector is None:
            return np.zeros(len(rows), np.float32), np.zeros(len(rows), np.bool_)
        embedded = self._attributes.column("embedded")
        if whole:
            cosine = self._vectors.scores(query.vector)
        elif 4 * len(rows) > len(self._vectors):
            cosine = self._vectors.scores(query.vector)[rows]
            embedded = embedded[rows]
        else:
            cosine = self._vectors.scores_of(query.vector, rows)
            embedded = embedded[rows]
        return cosine, None if embedded.all() else embedded

    def _best(self, query: IndexQuery, rows: Rows, score: Scores) -> list[int]:
        """Which candidates to show, in order. Without vectors, only those that have anything to show for."""
        time = self._attributes.column("time")
        # Both cuts keep all that are as good as the last one in, for the order among equals to decide.
        best = highest(score, query.top_k)
        if len(best) > query.top_k:
            last_in = score[best].min()
            above, equal = best[score[best] > last_in], best[score[best] == last_in]
            newest = highest(time[rows[equal]], query.top_k - len(above))
            best = np.concatenate((above, equal[newest]))
        if query.vector is None:
            best = best[score[best] > 0]
        if query.min_score is not None:
            best = best[score[best] >= query.min_score]

        def place(at: int) -> tuple[float, int, int]:
            row = int(rows[at])
            memory = self._memories[row]
            assert memory is not None
            return -float(score[at]), -int(time[row]), -memory.id.int

        return sorted(best.tolist(), key=place)[: query.top_k]

    def _matched(self, spelled: Mapping[str, str], rows: Rows) -> list[list[str]]:
        """For each of the rows, the query's words that it holds, as the query spells them."""
        holding = [(spelling, self._keywords.holding(term, rows)) for term, spelling in spelled.items()]
        return [[spelling for spelling, holds in holding if holds[n]] for n in range(len(rows))]


def _text_bytes(memory: Memory) -> int:
    # A string of ASCII takes a byte a character, others up to four.
    text = memory.text
    return 49 + len(text) * (1 if text.isascii() else 2)
