"""Agents' messages about provider errors, including litellm's: their kind of end, and when to
retry.

Agents pass on a status, or only a message. Causes map to the same ends as for chat models
(`paraval.models.call_errors`): 529 is a temporary refusal, a quota is not a rate limit.
"""

from __future__ import annotations

import re
import time

from paraval.agents.program import AgentEnd

LONGEST_COMPLAINT = 8000
LONGEST_WAIT_S = 31 * 86_400.0

_STATUS = re.compile(
    r"\b(?:status(?: code)?|http(?: error)?|api error|error(?: code)?|rejected|failed with)"
    r"[\s:=('\"]{0,4}([1-5]\d\d)\b",
    re.IGNORECASE,
)
_BEFORE_ITS_NAME = re.compile(
    r"\b([45]\d\d) (?:too many requests|unauthorized|forbidden|not found|bad request|bad gateway"
    r"|payment required|internal server error|service unavailable|gateway time-?out|overloaded"
    r"|[a-z_]+_error)",
    re.IGNORECASE,
)
_BEGINS = r"(?:^|[:.!·❌] {0,3}|\byou are |\byou're )"
"""The start of an error message, not the middle of another sentence."""
_NO_LOGIN = re.compile(
    rf"{_BEGINS}(?:not logged in|(?:login|authentication) required)\b"
    r"|please run /login|please (?:log|sign) ?in(?: with\b| to continue\b| again\b|[.!]?$)"
    r"|\brun [`'\"]?(?:claude|codex|opencode|gemini|auggie|mini-extra)(?: auth| config)? /?login\b"
    r"|no auth provided|missing bearer|oauth token (?:has )?(?:expired|been revoked|revoked)"
    r"|access token could not be refreshed"
    rf"|{_BEGINS}no api key (?:found|was found|provided|configured)\b"
    rf"|{_BEGINS}(?:the |your )?api key (?:is )?(?:missing|not set)\b"
    r"|must specify .{0,40}(?:api.?key|environment variable)|didn't provide an api key",
    re.IGNORECASE | re.MULTILINE,
)
_REFUSED_KEY = re.compile(
    r"invalid (?:x-)?api[ -]key|incorrect api key|api key not valid|invalid bearer token"
    r"|authentication_error|authenticationerror|invalid_api_key|invalid authentication"
    r"|permission_error|permission_denied|permission denied on resource"
    r"|\b(?:account|organization|key|you) do(?:es)? not have (?:access|permission) to"
    r" (?!.{0,20}model)",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(
    r"credit balance is too low|insufficient[_ ](?:quota|credits?|balance|funds)|billing_error"
    r"|billing_hard_limit_reached|billing_not_active|quota exceeded\. check your plan"
    r"|upgrade to plus",
    re.IGNORECASE,
)
"""Not "exceeded your current quota": Google uses it for every per-minute limit."""
_RATE_LIMITED = re.compile(
    r"rate[_ -]?limit(?:ed\b|_?error|_exceeded|s?(?: is| was| has been| for \S+)?"
    r" (?:exceeded|reached|hit)\b)|\b(?:exceed(?:ed|s)?|hit|reached) .{0,40}\brate[_ -]?limits?\b"
    r"|too many requests|hit your .{0,20}limit|\blimit reached\b|\busage limit (?:exceeded|hit)\b"
    r"|resource_exhausted|overloaded_error|exceeded your current quota",
    re.IGNORECASE,
)
_NO_MODEL = re.compile(
    r"model_not_found|unknown_model|invalid_model|not a valid model|unknown model"
    r"|model\b.{0,80}\b(?:does not exist|not found|may not exist|is not supported)",
    re.IGNORECASE,
)
_UNREACHABLE = re.compile(
    r"connection (?:error|refused)|connectionrefused|unable to connect|econnrefused"
    r"|enotfound|etimedout|fetch failed|error sending request|dns error"
    r"|connection failed|network error",
    re.IGNORECASE,
)
_DROPPED = re.compile(
    r"connection (?:was )?(?:closed|reset)|closed connection|econnreset|socket hang up"
    r"|stream disconnected(?!.*error sending request)|stream closed before|server disconnected"
    r"|premature close|error decoding response body|(?:api error|typeerror): terminated\b",
    re.IGNORECASE,
)
"""The provider was reached, and may bill for a partial answer."""
_OVERLOADED = re.compile(
    r"overloaded|internal server error|service unavailable|bad gateway|at capacity|high demand"
    r"|server_error|request timed out|gateway time-?out",
    re.IGNORECASE,
)
_BAD_REQUEST = re.compile(
    r"prompt is too long|context[_ ](?:length|window)[_ ]?exceeded|context window|input is too long"
    r"|invalid_request_error|invalid_prompt",
    re.IGNORECASE,
)
_BY_WORDS = (
    (_NO_CREDIT, AgentEnd.NO_CREDIT),
    (_NO_LOGIN, AgentEnd.NO_LOGIN),
    (_REFUSED_KEY, AgentEnd.REFUSED_KEY),
    (_RATE_LIMITED, AgentEnd.RATE_LIMITED),
    (_NO_MODEL, AgentEnd.NO_SUCH_MODEL),
    (_DROPPED, AgentEnd.DROPPED),
    (_UNREACHABLE, AgentEnd.UNREACHABLE),
    (_OVERLOADED, AgentEnd.OVERLOADED),
    (_BAD_REQUEST, AgentEnd.BAD_REQUEST),
)


def end_in(words: str, status: int | None = None) -> AgentEnd | None:
    """Return the end for a status and a message; None: neither matches."""
    text = words[:LONGEST_COMPLAINT]
    status = status if status is not None else status_in(text)
    if status is not None and 300 <= status < 600:
        return _by_status(status, text)
    return next((end for pattern, end in _BY_WORDS if pattern.search(text)), None)


def _by_status(status: int, text: str) -> AgentEnd:
    if status == 402 or (status in (400, 403, 429) and _NO_CREDIT.search(text)):
        return AgentEnd.NO_CREDIT
    match status:
        case 429 | 529:
            return AgentEnd.RATE_LIMITED
        case 401 | 403 | 407:
            return AgentEnd.NO_LOGIN if _NO_LOGIN.search(text) else AgentEnd.REFUSED_KEY
        case 404 | 405 | 410:
            return AgentEnd.NO_SUCH_MODEL
        case 408 | 409 | 425:
            return AgentEnd.OVERLOADED
    if status < 500:
        if _NO_MODEL.search(text):
            return AgentEnd.NO_SUCH_MODEL
        # Google returns 400 for an invalid key.
        return AgentEnd.REFUSED_KEY if _REFUSED_KEY.search(text) else AgentEnd.BAD_REQUEST
    return AgentEnd.OVERLOADED


def status_in(words: str) -> int | None:
    """Return an HTTP status named in the message."""
    found = _STATUS.search(words) or _BEFORE_ITS_NAME.search(words)
    return None if found is None else int(found[1])


# ---- when to retry

_AFTER = re.compile(
    r"(?:try again in|retry after|retry-after|come back in|reset(?:s|ting)? (?:in|after))"
    r"[\s:='\"]{0,4}((?:~?\d+(?:\.\d+)?\s*[a-z]*[,\s]*(?:and\s+)?){1,5})",
    re.IGNORECASE,
)
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.IGNORECASE)
_AT_EPOCH = re.compile(r"limit reached\|(\d{9,11})\b", re.IGNORECASE)
_UNITS = {
    "ms": 0.001,
    "milliseconds": 0.001,
    "": 1.0,
    "s": 1.0,
    "sec": 1.0,
    "secs": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "m": 60.0,
    "min": 60.0,
    "mins": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hr": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "d": 86_400.0,
    "day": 86_400.0,
    "days": 86_400.0,
}


def wait_in(words: str) -> float | None:
    """`try again in 2 hours 3 minutes`, `Retry-After: 20`, `limit reached|1718000000`: seconds."""
    text = words[:LONGEST_COMPLAINT]
    at = _AT_EPOCH.search(text)
    if at is not None:
        return min(max(0.0, int(at[1]) - time.time()), LONGEST_WAIT_S)
    after = _AFTER.search(text)
    if after is None:
        return None
    total, known = 0.0, False
    for number, unit in _SPAN.findall(after[1]):
        if unit.lower() not in _UNITS:
            break
        total += float(number) * _UNITS[unit.lower()]
        known = True
    return min(total, LONGEST_WAIT_S) if known else None


# litellm's names for provider errors: aider and mini-swe-agent use it.

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
    # It has no names for 402 and 403: they are an APIError, like any other status.
    AgentEnd.OVERLOADED: {AgentEnd.NO_CREDIT, AgentEnd.REFUSED_KEY},
    AgentEnd.UNREACHABLE: {AgentEnd.DROPPED},
}
"""How the message may refine the end given by the name."""


def end_of_litellm(name: str, words: str) -> AgentEnd | None:
    """Return the end for an exception's name and message; None: not one of litellm's."""
    end = ENDS.get(name)
    if end is None:
        return None
    # The message repeats the exception's name, which would be taken for the cause.
    finer = end_in(words.replace(name, "")) if end in _FINER else None
    if name == "AuthenticationError" and "api_key client option must be set" in words:
        return AgentEnd.NO_LOGIN
    return finer if finer is not None and finer in _FINER[end] else end
