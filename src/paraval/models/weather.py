"""Calls that end without an answer: which failure each is, and what a person can do about it.

Every end becomes an `Unanswered`, by its kind: a limit, a quota or a key of the account; a model or
an address that cannot work; a request that is wrong in itself; a fault that may pass. Redaction is
left to the wire, through which all of this leaves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from paraval.models.conversation import Unanswered
from paraval.models.reading import Complaint, complaint_of
from paraval.records import AccountUse, Failure, Model, Outcome, Spend, account_need, model_need
from paraval.strict_json import parse_strictly

LONGEST_QUOTE = 300
OVERLOADED = 529
"""Anthropic's status for it."""

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
"""Not "exceeded your current quota": Google says it of every limit by the minute."""
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
class Refusal:
    """An answer that is none: its status and what the server said."""

    status: int
    complaint: Complaint = field(default_factory=Complaint)
    retry_after: float | None = None
    location: str = ""
    """Of a redirect."""
    html: bool = False
    """A page for people: it comes from something between us and the provider."""
    proxy: str = "HTTPS_PROXY"
    """The variable where the proxy is set, or would be."""

    @property
    def quote(self) -> str:
        """` (404: The model 'x' does not exist)`."""
        said = one_line(self.complaint.message)
        return f" ({self.status}: {said})" if said else f" ({self.status})"


def refused(model: Model, refusal: Refusal) -> Unanswered:
    """The end that a status is."""
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
            return stops_model(model, f"this key may not use it{refusal.quote}; use another")
        case 407:
            message = f"the proxy wants a password{refusal.quote}; put it into {refusal.proxy}"
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


def told(model: Model, complaint: Complaint, *, has_text: bool) -> Unanswered:
    """An error inside an answer that began well; `has_text`: some of the answer had come."""
    ended = refused(model, _refusal_told(complaint))
    return replace(ended, spend=unknown_spend()) if has_text else ended


def _refusal_told(complaint: Complaint) -> Refusal:
    """With the status that it would have had."""
    named = (_STATUS_BY_KIND[kind] for kind in sorted(complaint.kinds) if kind in _STATUS_BY_KIND)
    # 429 says more than the general kind that stands beside it.
    status = complaint.status or max(named, default=500)
    return Refusal(status=status, complaint=complaint)


def complaint_in(text: str) -> Complaint:
    """What an error's body says, in the forms of the three protocols and some more."""
    if is_html(text):
        title = _TITLE.search(text)
        return Complaint(message=title[1] if title else "")
    try:
        told: Any = parse_strictly(text)
    except ValueError:
        return Complaint(message=text)
    if isinstance(told, list) and told:
        told = told[0]
    if not isinstance(told, Mapping):
        return Complaint(message=text)
    if told.get("error"):
        return complaint_of(told["error"])
    said = told.get("message") or told.get("detail")
    return replace(complaint_of(told), message=said if isinstance(said, str) else text)


def is_html(text: str) -> bool:
    return _HTML.match(text) is not None


def one_line(text: str) -> str:
    """A provider's own words: one line of printable characters, not too long."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text[:4000]).split())
    return line if len(line) <= LONGEST_QUOTE else f"{line[:LONGEST_QUOTE]}…"


def shown_address(model: Model) -> str:
    """Without the name and password that may stand in it."""
    return one_line(re.sub(r"//[^/]*@", "//", model.base_url))


def _is_quota(status: int, complaint: Complaint) -> bool:
    if status == 402 or complaint.kinds & _QUOTA_KINDS:
        return True
    return status in (400, 403, 429) and _QUOTA_WORDS.search(complaint.message) is not None


def _is_unknown_model(complaint: Complaint) -> bool:
    if complaint.kinds & _MODEL_KINDS:
        return True
    return _MODEL_WORDS.search(complaint.message) is not None


def _redirected(model: Model, refusal: Refusal) -> Unanswered:
    where = f" to {one_line(refusal.location)}" if refusal.location else ""
    message = (
        f"redirected{where} ({refusal.status}); not followed, because the key would go along: "
        "set base_url to where it should go"
    )
    return stops_model(model, message)


def _quota(model: Model, refusal: Refusal) -> Unanswered:
    message = f"its quota or credit is used up{refusal.quote}; top up the account, then resume"
    return unanswered(
        model,
        Outcome.RATE_LIMITED,
        f"{_account(model)}: {message}",
        stops=account_need(model.account),
    )


def _key_refused(model: Model, refusal: Refusal) -> Unanswered:
    if model.api_key_env is None:
        message = f"a key is wanted{refusal.quote}; name its variable in api_key_env, then resume"
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


def unsendable(model: Model, why: str) -> Unanswered:
    """A call that is not made, because its options are no JSON."""
    message = f"model '{model.name}': its options cannot be sent as JSON ({why}); set right ones"
    ended = unanswered(model, Outcome.CRASHED, message, stops=model_need(model.name))
    return replace(ended, use=AccountUse(account=ended.use.account))


def no_key(model: Model, problem: str) -> Unanswered:
    """A call that is not made, because the key for it is not there or cannot be sent."""
    message = f"{_account(model)}: {model.api_key_env} {problem}; set it, then resume"
    need = account_need(model.account)
    ended = unanswered(model, Outcome.CRASHED, message, stops=need)
    return replace(ended, use=AccountUse(account=need))


def _rate_limited(model: Model, refusal: Refusal) -> Unanswered:
    what = "is overloaded" if refusal.status == OVERLOADED else "refused for now"
    wait = refusal.retry_after
    when = "" if wait is None else f"; it says to come back in {wait:g} s"
    message = f"model '{model.name}': the provider {what}{refusal.quote}{when}"
    need = account_need(model.account)
    return Unanswered(
        failure=Failure(kind=Outcome.RATE_LIMITED, message=message, retry_after=wait, account=need),
        use=AccountUse(account=need, requests=1, refused=True, retry_after=wait),
    )


def _not_there(model: Model, refusal: Refusal) -> Unanswered:
    message = (
        f"the provider knows no such model or path{refusal.quote}; check model "
        f"('{one_line(model.model)}') and base_url ({shown_address(model)})"
    )
    return stops_model(model, message)


def _request_wrong(model: Model, refusal: Refusal) -> Unanswered:
    message = (
        f"model '{model.name}': the provider will not take this request{refusal.quote}; "
        "check the prompt's length and the model's options"
    )
    return unanswered(model, Outcome.CRASHED, message, lasting=True)


def _server_failed(model: Model, refusal: Refusal) -> Unanswered:
    if refusal.html:
        return unreached(
            model,
            f"a web page came instead of an answer{refusal.quote}; check base_url and the proxy",
            retry_after=refusal.retry_after,
        )
    ended = passing(model, f"the provider failed{refusal.quote}", refusal.retry_after)
    return replace(ended, use=replace(ended.use, overloaded=True))


# ---- the ends themselves


def unreached(model: Model, what: str, *, retry_after: float | None = None) -> Unanswered:
    """No sensible answer at all: not from the provider, as far as can be seen."""
    ended = passing(model, what, retry_after)
    return replace(ended, use=AccountUse(account=ended.use.account, reached=False))


def passing(model: Model, what: str, retry_after: float | None = None) -> Unanswered:
    ended = unanswered(model, Outcome.INFRA_ERROR, f"model '{model.name}': {what}")
    return replace(ended, failure=replace(ended.failure, retry_after=retry_after))


def stops_model(model: Model, what: str, *, reached: bool = True) -> Unanswered:
    message = f"model '{model.name}': {what}, then resume"
    ended = unanswered(model, Outcome.CRASHED, message, stops=model_need(model.name))
    if reached:
        return ended
    return replace(ended, use=AccountUse(account=ended.use.account, reached=False))


def unanswered(
    model: Model, kind: Outcome, message: str, *, lasting: bool = False, stops: str | None = None
) -> Unanswered:
    need = account_need(model.account)
    return Unanswered(
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
    """Of a call that the provider worked on, and may bill."""
    return Spend(calls=1, cost_usd=None)
