"""The offline model behind the port of every language model."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Mapping

from sage_server.adapters.offline_model.answering import answered
from sage_server.adapters.offline_model.prompt_reading import read_situation
from sage_server.adapters.offline_model.summarising import summarised
from sage_server.domain.turns import TokenUsage
from sage_server.ports.language_model import Completion, Piece, Prompt, Purpose, Reply
from sage_server.ports.tokens import TokenCounter

OFFLINE_PROVIDER = "offline"
_PIECES = re.compile(r"\s*\S+|\s+$")


class OfflineModel:
    """Implements LanguageModel. The same prompt has the same answer, always; it never fails and waits for
    nobody."""

    name = f"{OFFLINE_PROVIDER}/sage"

    def __init__(self, write: Callable[[Prompt], str], tokens: TokenCounter) -> None:
        self._write = write
        self._tokens = tokens

    async def ask(self, prompt: Prompt, *, stream: bool) -> AsyncGenerator[Reply, None]:
        """See LanguageModel."""
        text = self._write(prompt)
        if stream:
            for piece in _PIECES.findall(text):
                yield Piece(piece)
        asked = sum(self._tokens.count(message.text) for message in prompt.messages)
        usage = TokenUsage(prompt_tokens=asked, completion_tokens=self._tokens.count(text), model_calls=1)
        yield Completion(text, usage)


def offline_models(tokens: TokenCounter) -> Mapping[Purpose, OfflineModel]:
    """The model for each purpose."""
    return {
        Purpose.CHAT: OfflineModel(lambda prompt: answered(read_situation(prompt)).as_json(), tokens),
        Purpose.SUMMARY: OfflineModel(summarised, tokens),
        # Whether somebody goes on with a subject is more than rules can tell.
        Purpose.ROUTING: OfflineModel(lambda _prompt: "UNSURE", tokens),
    }
