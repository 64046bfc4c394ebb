"""Values as short texts for people."""

from __future__ import annotations

from datetime import datetime, timedelta

# A text may come from a model or a web page: nothing in it may steer the terminal.
_CONTROLS = dict.fromkeys([*range(0x20), *range(0x7F, 0xA0)])
_KEEP_LINES = {code: None for code in _CONTROLS if chr(code) not in "\n\t"}


def safe(text: str) -> str:
    """The text without control characters; lines and tabs stay."""
    return text.translate(_KEEP_LINES)


def one_line(text: str) -> str:
    """The text on one line, safe to show."""
    return " ".join(text.split()).translate(_CONTROLS)


def when(time: datetime | None) -> str:
    """A time in the local zone in at most 10 characters: of today the hour, of this year the day."""
    if time is None:
        return ""
    local, now = time.astimezone(), datetime.now().astimezone()
    if local.date() == now.date():
        return f"{local:%H:%M}"
    return f"{local.day} {local:%b}" if local.year == now.year else f"{local:%Y-%m-%d}"


def exactly(time: datetime | None) -> str:
    """A time in the local zone, to the second."""
    return "" if time is None else f"{time.astimezone():%Y-%m-%d %H:%M:%S}"


def seconds(duration: timedelta) -> str:
    """A duration, as `10 min`, `1.2 s` or `45 ms`."""
    value = duration.total_seconds()
    if value >= 120:
        return f"{value / 60:,.0f} min"
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def size(count: int) -> str:
    """A number of bytes, as `12 kB`."""
    for unit, scale in (("MB", 1_000_000), ("kB", 1000)):
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} B"


def counted(count: int, one: str, many: str = "") -> str:
    """`1 step`, `2 steps`, `1,200 memories`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def bar(share: float, width: int) -> str:
    """A bar of block characters; something that is there shows, however small."""
    eighths = min(width * 8, max(round(share * width * 8), 1 if share > 0 else 0))
    full, rest = divmod(eighths, 8)
    return "█" * full + (" ▏▎▍▌▋▊▉"[rest] if rest else "")
