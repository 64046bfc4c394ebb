"""Unit vectors in segments, scored exactly with FAISS's kernels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import faiss
import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float32]
Rows: TypeAlias = npt.NDArray[np.int64]
_SEGMENT_BYTES = 16 * 1024 * 1024
"""Large enough for huge pages, with which a scan is half as long again faster."""
_FIRST_ROWS = 16
# FAISS wraps them, its type stubs do not know them.
_kernels: Any = faiss
_ptr: Any = faiss.swig_ptr


class Vectors:
    """One vector a row, addressed by row number. A row without a vector holds zeros.

    What a FAISS flat index does, with rows that can be cleared in place: the same kernels over memory of
    our own. A segment is never moved once it has its full size, so growing copies next to nothing, and the
    room beyond the last row is at most one segment.
    """

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self._segment_rows = max(1, _SEGMENT_BYTES // (4 * dimensions))
        self._segments: list[Floats] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def bytes(self) -> int:
        """Memory that the segments take."""
        return sum(segment.nbytes for segment in self._segments)

    def extend(self, count: int) -> list[Floats]:
        """Add rows of zeros; answers with the memory of the new rows, in order, for the caller to fill."""
        added = []
        while count:
            used = self._count % self._segment_rows
            if not used and self._count == self._segment_rows * len(self._segments):
                self._segments.append(np.zeros((0, self.dimensions), np.float32))
            segment = self._with_room(used, count)
            taken = min(count, len(segment) - used)
            added.append(segment[used : used + taken])
            self._count += taken
            count -= taken
        return added

    def cut(self, count: int) -> None:
        """Take back the rows after the first `count`."""
        for row in range(count, self._count):
            self.clear(row)
        del self._segments[-(-count // self._segment_rows) :]
        self._count = count

    def clear(self, row: int) -> None:
        """Forget the vector of a row."""
        self._segments[row // self._segment_rows][row % self._segment_rows] = 0.0

    def scores(self, query: Floats) -> Floats:
        """The inner product of the query with every row."""
        found = np.empty(self._count, np.float32)
        query = np.ascontiguousarray(query, np.float32)
        for number, segment in enumerate(self._segments):
            start = number * self._segment_rows
            rows = min(self._segment_rows, self._count - start)
            out = found[start : start + rows]
            _kernels.fvec_inner_products_ny(_ptr(out), _ptr(query), _ptr(segment), self.dimensions, rows)
        return found

    def scores_of(self, query: Floats, rows: Rows) -> Floats:
        """The inner product of the query with some rows, which must be in ascending order."""
        found = np.empty(len(rows), np.float32)
        query = np.ascontiguousarray(query, np.float32)
        starts = np.arange(len(self._segments) + 1) * self._segment_rows
        cuts: Sequence[int] = np.searchsorted(rows, starts).tolist()
        for number, segment in enumerate(self._segments):
            first, last = cuts[number], cuts[number + 1]
            if first == last:
                continue
            inside = np.ascontiguousarray(rows[first:last] - number * self._segment_rows)
            _kernels.fvec_inner_products_by_idx(
                _ptr(found[first:last]),
                _ptr(query),
                _ptr(segment),
                _ptr(inside),
                self.dimensions,
                1,
                last - first,
            )
        return found

    def only(self, rows: Rows) -> Vectors:
        """These rows alone, in ascending order, numbered anew."""
        kept = Vectors(self.dimensions)
        done = 0
        for room in kept.extend(len(rows)):
            for out, row in zip(room, rows[done : done + len(room)].tolist(), strict=True):
                out[:] = self._segments[row // self._segment_rows][row % self._segment_rows]
            done += len(room)
        return kept

    def _with_room(self, used: int, wanted: int) -> Floats:
        """The last segment with room for all that fits into one: growing later would leave behind what the
        caller writes into the rows before. It grows by half, up to its full size."""
        segment = self._segments[-1]
        needed = min(self._segment_rows, used + wanted)
        if needed <= len(segment):
            return segment
        size = min(self._segment_rows, max(_FIRST_ROWS, len(segment) * 3 // 2, needed))
        if len(self._segments) > 1:
            size = self._segment_rows
        grown = np.zeros((size, self.dimensions), np.float32)
        grown[:used] = segment[:used]
        self._segments[-1] = grown
        return grown
