"""Places at which a process can be made to die, to prove that nothing is lost there."""

from __future__ import annotations

import os
import signal


class Failpoints:
    """Kills the process at one named place, as `kill -9` does. Without a name it does nothing.

    `where` is the name, or `name:3` for the third time that the place is reached.
    """

    def __init__(self, where: str | None = None) -> None:
        name, _, times = (where or "").partition(":")
        self._name = name
        self._left = int(times or 1)

    def reach(self, name: str) -> None:
        """The process is at this place."""
        if name == self._name:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


NO_FAILPOINTS = Failpoints()
