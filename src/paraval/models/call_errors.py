"""Classifies calls that end without an answer, and says what the user can do about it.

Every such end becomes a `FailedCall` of some kind: an account's limit, quota or key; a model or an
address that cannot work; an invalid request; a transient fault. Redaction is left to the wire,
which all of this passes through.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from paraval.dataclass import dataclass
from paraval.documents.json import parse_strictly
from paraval.models.requests import FailedCall
from paraval.models.response_reader import (
    ServerComplaint,
    complaint_of,
)
from paraval.records import (
    AccountUse,
    Failure,
    Model,
    Outcome,
    Provider,
    Spend,
    account_need,
    call_need,
    model_need,
)

LONGEST_QUOTE = 300
OVERLOADED = 529
"""Anthropic's "overloaded" status."""

_QUOTA_KINDS = {
    "insufficient_quota",
    "billing_error",
    "billing_hard_limit_reached",
    "billing_not_active",
    "credit_balance_too_low",
    "insufficient_balance",
}
_QUOTA_WORDS = re.compile(
    r"credit balance is too low|insufficient (?:credits?|balance|funds)", re.IGNORECASE
)
"""Not "exceeded your current quota": Google uses it for every per-minute limit."""
_MODEL_KINDS = {"model_not_found", "invalid_model", "unknown_model"}
_MODEL_WORDS = re.compile(
    r"not a valid model|model\b.{0,80}\b(?:does not exist|not found)", re.IGNORECASE
)
_STATUS_BY_KIND = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "timeout_error": 408,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 429,
    "overloaded_error": OVERLOADED,
    "api_error": 500,
    "server_error": 500,
    "context_length_exceeded": 400,
    "invalid_prompt": 400,
}
_HTML = re.compile(r"\s*(?:<!doctype html|<html|<head|<body|<\?xml)", re.IGNORECASE)
_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)


# ---- statuses


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderRefusal:
    """An error response: its status and the server's message."""

    status: int
    complaint: ServerComplaint = field(default_factory=ServerComplaint)
    retry_after: float | None = None
    location: str = ""
    """Target of a redirect."""
    html: bool = False
    """The body is a web page, so it comes from something between us and the provider."""
    proxy: str = "HTTPS_PROXY"
    """The environment variable that sets the proxy."""

    @property
    def quote(self) -> str:
        """` (404: The model 'x' does not exist)`."""
        message = one_line(self.complaint.message)
        return f" ({self.status}: {message})" if message else f" ({self.status})"


def refused(model: Model, refusal: ProviderRefusal) -> FailedCall:
    """Turn an error status into a failure."""
    status, complaint = refusal.status, refusal.complaint
    if 300 <= status < 400:
        return _redirected(model, refusal)
    if _is_quota(status, complaint):
        return _quota(model, refusal)
    match status:
        case 429 | 529:
            return _rate_limited(model, refusal)
        case 401:
            return _key_refused(model, refusal)
        case 403:
            return stops_model(
                model, f"this key is not allowed to use it{refusal.quote}; use another key"
            )
        case 407:
            message = f"the proxy requires a password{refusal.quote}; add it to {refusal.proxy}"
            return stops_model(model, message, reached=False)
        case 404 | 405 | 410:
            return _not_there(model, refusal)
        case 408 | 409 | 425:
            return passing(model, f"the provider did not answer{refusal.quote}")
    if _is_unknown_model(complaint):
        return _not_there(model, refusal)
    if 400 <= status < 500 and not refusal.html:
        return _request_wrong(model, refusal)
    return _server_failed(model, refusal)


def failed_in_stream(model: Model, complaint: ServerComplaint, *, has_text: bool) -> FailedCall:
    """Turn an error inside a response that began well into a failure; `has_text`: part of the
    answer had arrived."""
    ended = refused(model, _refusal_from(complaint))
    return replace(ended, spend=unknown_spend()) if has_text else ended


def _refusal_from(complaint: ServerComplaint) -> ProviderRefusal:
    """The refusal, with the status the error would have had."""
    named = (_STATUS_BY_KIND[kind] for kind in sorted(complaint.kinds) if kind in _STATUS_BY_KIND)
    # 429 is more specific than the general kind next to it.
    status = complaint.status or max(named, default=500)
    return ProviderRefusal(status=status, complaint=complaint)


def complaint_in(text: str) -> ServerComplaint:
    """Parse an error body, in the formats of the three protocols and some more."""
    if is_html(text):
        title = _TITLE.search(text)
        return ServerComplaint(message=title[1] if title else "")
    try:
        body: Any = parse_strictly(text)
    except ValueError:
        return ServerComplaint(message=text)
    if isinstance(body, list) and body:
        body = body[0]
    if not isinstance(body, Mapping):
        return ServerComplaint(message=text)
    if body.get("error"):
        return complaint_of(body["error"])
    message = body.get("message") or body.get("detail")
    return replace(complaint_of(body), message=message if isinstance(message, str) else text)


def is_html(text: str) -> bool:
    return _HTML.match(text) is not None


def one_line(text: str) -> str:
    """A provider's message as one line of printable characters, shortened."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[:4000]).split())
    return line if len(line) <= LONGEST_QUOTE else f"{line[:LONGEST_QUOTE]}…"


def shown_address(model: Model) -> str:
    """The base URL without its user name and password."""
    return one_line(re.sub(r"//[^/]*@", "//", model.base_url))


def _is_quota(status: int, complaint: ServerComplaint) -> bool:
    if status == 402 or complaint.kinds & _QUOTA_KINDS:
        return True
    return status in (400, 403, 429) and _QUOTA_WORDS.search(complaint.message) is not None


def _is_unknown_model(complaint: ServerComplaint) -> bool:
    if complaint.kinds & _MODEL_KINDS:
        return True
    return _MODEL_WORDS.search(complaint.message) is not None


def _redirected(model: Model, refusal: ProviderRefusal) -> FailedCall:
    where = f" to {one_line(refusal.location)}" if refusal.location else ""
    message = (
        f"redirected{where} ({refusal.status}); not followed, since the key would be sent there; "
        "set base_url to the right address"
    )
    return stops_model(model, message)


def _quota(model: Model, refusal: ProviderRefusal) -> FailedCall:
    message = f"its quota or credit is used up{refusal.quote}; top up the account, then resume"
    return unanswered(
        model,
        Outcome.RATE_LIMITED,
        f"{_account(model)}: {message}",
        stops=account_need(model.account),
    )


def _key_refused(model: Model, refusal: ProviderRefusal) -> FailedCall:
    if model.api_key_env is None:
        message = (
            f"an API key is required{refusal.quote}; set api_key_env to its variable, then resume"
        )
    else:
        message = (
            f"the key in {model.api_key_env} was refused{refusal.quote}; set a valid one, then "
            "resume"
        )
    return unanswered(
        model,
        Outcome.CRASHED,
        f"{_account(model)}: {message}",
        stops=account_need(model.account),
    )


def unsendable(model: Model, why: str) -> FailedCall:
    """A call not made because its options cannot be encoded as JSON."""
    message = f"model '{model.name}': its options cannot be sent as JSON ({why}); fix them"
    ended = unanswered(model, Outcome.CRASHED, message, stops=model_need(model.name))
    return replace(ended, use=AccountUse(account=ended.use.account))


def no_key(model: Model, problem: str) -> FailedCall:
    """A call not made because its key is missing or cannot be sent."""
    message = f"{_account(model)}: {model.api_key_env} {problem}; set it, then resume"
    ended = unanswered(model, Outcome.CRASHED, message, stops=account_need(model.account))
    return replace(ended, use=AccountUse(account=ended.use.account))


def _rate_limited(model: Model, refusal: ProviderRefusal) -> FailedCall:
    what = "is overloaded" if refusal.status == OVERLOADED else "is rate limiting"
    wait = refusal.retry_after
    when = "" if wait is None else f"; retry after {wait:g} s"
    message = f"model '{model.name}': the provider {what}{refusal.quote}{when}"
    whole = _names_whole_account(model, refusal.complaint.message)
    need = account_need(model.account) if whole else call_need(model)
    return FailedCall(
        failure=Failure(kind=Outcome.RATE_LIMITED, message=message, retry_after=wait, account=need),
        use=AccountUse(
            account=call_need(model),
            requests=1,
            refused=True,
            whole_account=whole,
            retry_after=wait,
        ),
    )


_WHOLE_ACCOUNT = re.compile(
    r"\b(?:organi[sz]ation|workspace|project|account|api[ -]?key|key|team|user|tenant)\b",
    re.IGNORECASE,
)


def _names_whole_account(model: Model, message: str) -> bool:
    """Whether a limit is one of all models: the message names who calls, and not what is called.
    Anthropic always names the organization, though its limits are those of a model."""
    if model.provider is Provider.ANTHROPIC or re.search(r"\bmodel\b", message, re.IGNORECASE):
        return False
    return model.model not in message and _WHOLE_ACCOUNT.search(message) is not None


def _not_there(model: Model, refusal: ProviderRefusal) -> FailedCall:
    message = (
        f"model or path not found{refusal.quote}; check model "
        f"('{one_line(model.model)}') and base_url ({shown_address(model)})"
    )
    return stops_model(model, message)


def _request_wrong(model: Model, refusal: ProviderRefusal) -> FailedCall:
    message = (
        f"model '{model.name}': the provider rejected this request{refusal.quote}; "
        "check the prompt's length and the model's options"
    )
    return unanswered(model, Outcome.CRASHED, message, lasting=True)


def _server_failed(model: Model, refusal: ProviderRefusal) -> FailedCall:
    if refusal.html:
        return unreached(
            model,
            f"got a web page instead of an answer{refusal.quote}; check base_url and the proxy",
            retry_after=refusal.retry_after,
        )
    ended = passing(model, f"the provider failed{refusal.quote}", refusal.retry_after)
    return replace(ended, use=replace(ended.use, overloaded=True))


# ---- how calls end


def unreached(model: Model, what: str, *, retry_after: float | None = None) -> FailedCall:
    """No usable response, probably not from the provider at all."""
    ended = passing(model, what, retry_after)
    return replace(ended, use=AccountUse(account=ended.use.account, reached=False))


def passing(model: Model, what: str, retry_after: float | None = None) -> FailedCall:
    ended = unanswered(model, Outcome.INFRA_ERROR, f"model '{model.name}': {what}")
    return replace(ended, failure=replace(ended.failure, retry_after=retry_after))


def stops_model(model: Model, what: str, *, reached: bool = True) -> FailedCall:
    message = f"model '{model.name}': {what}, then resume"
    ended = unanswered(model, Outcome.CRASHED, message, stops=model_need(model.name))
    if reached:
        return ended
    return replace(ended, use=AccountUse(account=ended.use.account, reached=False))


def unanswered(
    model: Model, kind: Outcome, message: str, *, lasting: bool = False, stops: str | None = None
) -> FailedCall:
    need = call_need(model)
    return FailedCall(
        failure=Failure(
            kind=kind,
            message=message,
            account=need,
            lasting=lasting or stops is not None,
            stops=stops,
        ),
        use=AccountUse(account=need, requests=1),
    )


def _account(model: Model) -> str:
    return f"model '{model.name}', account '{model.account}'"


def unknown_spend() -> Spend:
    """Spend of a call that the provider worked on and may bill."""
    return Spend(calls=1, cost_usd=None)
