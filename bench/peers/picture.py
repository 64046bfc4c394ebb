"""One picture for the documentation: how many times as long as Sage everybody takes."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from bench.peers.measure import LINES, SEARCHES, Line
from bench.peers.peer import Kind, Peer
from bench.peers.report import Report, short

_INK, _PALE, _PAPER = "#1f2933", "#52606d", "#ffffff"
_COLOURS = {Kind.SAGE: "#0b7a75", Kind.PRODUCT: "#e08e45", Kind.BY_HAND: "#9fb3c8"}
_TITLE = "Time per operation, relative to Sage: bars to the right are slower, to the left faster (log scale)"
_LOST = 0.9
"""Below this recall a fast search is fast because it does not find the answer."""


def draw(report: Report, path: Path) -> None:
    """Write the picture; its kind follows the file's ending. It has a background of its own, so that it reads
    the same on a light and on a dark page."""
    # The same run gives the same file.
    style = {"svg.hashsalt": "peers", "font.family": "DejaVu Sans", "font.size": 9.5, "text.color": _INK}
    with mpl.rc_context(style):
        figure = Figure(figsize=(11.5, 6.8), facecolor=_PAPER, layout="constrained")
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.1)
        figure.suptitle(_TITLE, fontsize=12, fontweight="bold", x=0.012, ha="left")
        panels = figure.subplots(2, 3, sharey=True, sharex=True)
        for axes, line in zip(panels.flat, LINES, strict=True):
            _panel(axes, report, line)
        _shared(panels.flat[0], report)
        figure.supxlabel(_footnote(report), fontsize=8.5, color=_PALE, x=0.012, ha="left")
        patches = [Patch(color=colour, label=kind.value) for kind, colour in _COLOURS.items()]
        figure.legend(handles=patches, loc="outside lower right", ncols=3, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        metadata = {"Date": None} if path.suffix == ".svg" else None
        figure.savefig(path, dpi=110, facecolor=_PAPER, metadata=metadata)


def _panel(axes: Axes, report: Report, line: Line) -> None:
    axes.set_xscale("log")
    axes.axvline(1, color=_COLOURS[Kind.SAGE], linewidth=1.8)
    for place, peer in enumerate(report.peers):
        ratio = report.ratio(line, peer) or 1.0
        # Bars begin at Sage's 1.
        axes.barh(place, ratio - 1, left=1, color=_COLOURS[peer.kind], height=0.68)
        axes.annotate(
            _label(report, line, peer),
            (max(ratio, 1.0), place),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8.5,
            fontweight="bold" if peer.kind is Kind.SAGE else "normal",
        )
    axes.set_title(line.title, fontsize=10.5, loc="left", color=_INK)
    axes.tick_params(axis="y", length=0, labelcolor=_INK)
    axes.tick_params(axis="x", which="both", bottom=False, labelbottom=False)
    axes.spines[:].set_visible(False)


def _shared(axes: Axes, report: Report) -> None:
    """The same scale in all panels, with room for what is written beside the longest bar."""
    ratios = [report.ratio(line, peer) or 1.0 for line in LINES for peer in report.peers]
    low, high = min(ratios) / 1.3, max(ratios)
    axes.set_xlim(low, high * (high / low) ** 0.55)
    axes.set_yticks(range(len(report.peers)), [peer.name for peer in report.peers])
    axes.invert_yaxis()


def _label(report: Report, line: Line, peer: Peer) -> str:
    measured, ratio = report.figures[line][peer.key], report.ratio(line, peer)
    label = f"{short(measured.milliseconds)} ms"
    if peer.kind is not Kind.SAGE and ratio is not None:
        label = f"{short(ratio)}\N{MULTIPLICATION SIGN}  {label}"
    lost = line in SEARCHES and measured.recall < _LOST
    return f"{label}, finds {measured.recall:.0%}" if lost else label


def _footnote(report: Report) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    return (
        "Sage: over gRPC, durable, encrypted. The others: in the caller's process, some with Postgres.\n"
        f"{versions}."
    )
