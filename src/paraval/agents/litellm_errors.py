"""What litellm calls a provider's errors: aider and mini-swe-agent ask their models through it."""

from __future__ import annotations

from paraval.agents.complaints import end_told
from paraval.agents.program import AgentEnd

ENDS = {
    "APIConnectionError": AgentEnd.UNREACHABLE,
    "APIError": AgentEnd.OVERLOADED,
    "AuthenticationError": AgentEnd.REFUSED_KEY,
    "BadGatewayError": AgentEnd.OVERLOADED,
    "BadRequestError": AgentEnd.BAD_REQUEST,
    "BudgetExceededError": AgentEnd.NO_CREDIT,
    "ContentPolicyViolationError": AgentEnd.BAD_REQUEST,
    "ContextWindowExceededError": AgentEnd.BAD_REQUEST,
    "InternalServerError": AgentEnd.OVERLOADED,
    "NotFoundError": AgentEnd.NO_SUCH_MODEL,
    "PermissionDeniedError": AgentEnd.REFUSED_KEY,
    "RateLimitError": AgentEnd.RATE_LIMITED,
    "ServiceUnavailableError": AgentEnd.OVERLOADED,
    "Timeout": AgentEnd.OVERLOADED,
    "UnprocessableEntityError": AgentEnd.BAD_REQUEST,
}
"""By the names of its exceptions."""

_FINER = {
    AgentEnd.REFUSED_KEY: {AgentEnd.NO_LOGIN},
    AgentEnd.RATE_LIMITED: {AgentEnd.NO_CREDIT},
    AgentEnd.BAD_REQUEST: {AgentEnd.NO_CREDIT, AgentEnd.REFUSED_KEY, AgentEnd.NO_SUCH_MODEL},
    # It has no name for 402 and 403: they are an APIError, as any other status is.
    AgentEnd.OVERLOADED: {AgentEnd.NO_CREDIT, AgentEnd.REFUSED_KEY},
    AgentEnd.UNREACHABLE: {AgentEnd.DROPPED},
}
"""What the words may make of an end that the name tells."""


def end_of_litellm(name: str, words: str) -> AgentEnd | None:
    """The end that an exception is, by its name and message; None: it is none of litellm's."""
    end = ENDS.get(name)
    if end is None:
        return None
    # Its own words name the exception, and would be taken for the cause.
    told = end_told(words.replace(name, "")) if end in _FINER else None
    if name == "AuthenticationError" and "api_key client option must be set" in words:
        return AgentEnd.NO_LOGIN
    return told if told is not None and told in _FINER[end] else end
