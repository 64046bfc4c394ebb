"""The figures for people, as tables, and for machines, as one object."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bench.peers.measure import LINES, SEARCH, SEARCHES, Figures, Line
from bench.peers.peer import Kind, Peer
from bench.result import Goal, at_least, at_most


@dataclass(frozen=True)
class Aim:
    """A ratio of times that should keep its goal, and whom it was measured against."""

    name: str
    ratio: float
    goal: Goal
    other: str

    @property
    def met(self) -> bool:
        return self.goal.met(self.ratio)


@dataclass(frozen=True)
class Report:
    """All figures of a run. Ratios are the other's time divided by Sage's: above 1 Sage is faster."""

    peers: Sequence[Peer]
    figures: Figures
    versions: dict[str, str]
    seconds: float

    def ratio(self, line: Line, peer: Peer) -> float | None:
        """How many times as long as Sage it takes. None if Sage did not take part."""
        ours = self.figures[line].get("sage")
        return None if ours is None else self.figures[line][peer.key].milliseconds / ours.milliseconds

    def times(self) -> str:
        """Milliseconds an operation, and the ratio to Sage's."""
        head = ["ms per operation (times Sage's)", *(line.title for line in LINES)]
        return _table(
            [head, *([peer.name, *(self._time(line, peer) for line in LINES)] for peer in self.peers)]
        )

    def recalls(self) -> str:
        """The share of the exact ten nearest that was found."""
        head = ["recall@10", *(line.title for line in SEARCHES), "how it works"]
        rows = [
            [peer.name, *(f"{self.figures[line][peer.key].recall:.2f}" for line in SEARCHES), peer.about]
            for peer in self.peers
        ]
        return _table([head, *rows])

    def goals(self) -> list[Aim]:
        """What should hold: ahead of every memory product on every line, and within twice of pgvector's HNSW
        on search."""
        aims = []
        for line in LINES:
            products = [peer for peer in self.peers if peer.kind is Kind.PRODUCT]
            ratios = [(ratio, peer.key) for peer in products if (ratio := self.ratio(line, peer)) is not None]
            if ratios:
                ratio, nearest = min(ratios)
                aims.append(Aim(f"{line.key}_nearest_product_vs_sage", ratio, at_least(1), nearest))
        figures = self.figures[SEARCH]
        if {"sage", "pgvector_hnsw"} <= figures.keys():
            ratio = figures["sage"].milliseconds / figures["pgvector_hnsw"].milliseconds
            aims.append(Aim("search_sage_vs_pgvector_hnsw", ratio, at_most(2), "pgvector_hnsw"))
        return aims

    def as_json(self) -> dict[str, object]:
        """Everything, with names that do not change."""
        return {
            "lines": {
                line.key: {peer.key: self._figure(line, peer) for peer in self.peers} for line in LINES
            },
            "goals": {
                aim.name: {
                    "ratio": round(aim.ratio, 3),
                    "goal": str(aim.goal),
                    "met": aim.met,
                    "other": aim.other,
                }
                for aim in self.goals()
            },
            "versions": self.versions,
            "seconds": round(self.seconds),
        }

    def _figure(self, line: Line, peer: Peer) -> dict[str, float | int | None]:
        measured, ratio = self.figures[line][peer.key], self.ratio(line, peer)
        figure: dict[str, float | int | None] = {
            "milliseconds": round(measured.milliseconds, 4),
            "times_sage": None if ratio is None else round(ratio, 3),
            "operations": measured.operations,
        }
        return figure | ({"recall": round(measured.recall, 4)} if line in SEARCHES else {})

    def _time(self, line: Line, peer: Peer) -> str:
        measured, ratio = self.figures[line][peer.key], self.ratio(line, peer)
        # Fewer than everybody else: a sample, for those that are slow.
        most = max(one.operations for one in self.figures[line].values())
        sampled = f" n={measured.operations}" if measured.operations < most else ""
        return short(measured.milliseconds) + ("" if ratio is None else f" ({short(ratio)}x)") + sampled


def short(value: float) -> str:
    """Two digits that count, or all of them before the point."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}" if value >= 1 else f"{value:.2g}"


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
