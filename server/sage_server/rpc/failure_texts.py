"""What people are told of a turn that failed: a fixed sentence for each reason."""

from __future__ import annotations

from sage_server.domain.errors import Reason

_ANY = "The turn failed."
FAILURE_TEXTS = {
    Reason.AGENT_DISABLED: "The agent is not enabled.",
    Reason.CONTEXT_BUDGET_EXCEEDED: "What the agent must know does not fit into its context.",
    Reason.CONVERSATION_DELETED: "The conversation was deleted.",
    Reason.DATABASE_UNAVAILABLE: "The database could not be reached.",
    Reason.DATA_LOSS: "A stored value could not be decrypted.",
    Reason.DEADLINE_EXCEEDED: "The turn took too long.",
    Reason.EMBEDDING_UNAVAILABLE: "The embedding model could not be reached.",
    Reason.FEATURE_DISABLED: "Turns are switched off.",
    Reason.INTERNAL: "Something went wrong on the server.",
    Reason.MODEL_CONTEXT_TOO_LONG: "The context was too long for the model.",
    Reason.MODEL_NOT_CONFIGURED: "No language model is configured.",
    Reason.MODEL_OUTPUT_EMPTY: "The model answered nothing.",
    Reason.MODEL_OUTPUT_INVALID: "The model's answer could not be understood.",
    Reason.MODEL_RATE_LIMITED: "The model's provider has too many requests at the moment.",
    Reason.MODEL_REFUSED: "The model refused to answer.",
    Reason.MODEL_REJECTED: "The model's provider rejected the request.",
    Reason.MODEL_TIMEOUT: "The model took too long to answer.",
    Reason.MODEL_UNAVAILABLE: "The model's provider could not be reached.",
    Reason.MODEL_UNKNOWN: "The agent's model is not known.",
    Reason.NOT_FOUND: "What the turn needs is no longer there.",
    Reason.OVERLOADED: "The server is too busy.",
    Reason.TURN_LIMIT_EXCEEDED: "The turn reached a limit before it had said anything.",
    Reason.USER_ERASED: "The user was erased.",
}


def failure_text(reason: Reason) -> str:
    """The sentence of a reason."""
    return FAILURE_TEXTS.get(reason, _ANY)
