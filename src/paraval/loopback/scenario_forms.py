"""The format of a scenario file: every key and its type.

Only data: the modules for answers, limits, faults and so on use these forms.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    WrapValidator,
    model_validator,
)

Pattern = re.Pattern[str]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Share = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]
GROUP = re.compile(r"\\(?:(\d{1,2})|g<(\w+)>)")
"""A text's reference to a group of its pattern; all other backslashes are literal."""
GROUPS_OF_REQUEST = frozenset({"cwd", "result"})
"""Names that every text may refer to: the agent's working folder, and the result of its last tool
call."""


class ScenarioPart(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _in_a_list(written: Any) -> Any:
    return written if isinstance(written, list) else [written]


# ---- latency


class Latency(ScenarioPart):
    """How long a model takes: fixed, or drawn from a lognormal distribution."""

    match: Pattern | None = None
    seconds: Seconds | None = None
    median: Seconds | None = None
    sigma: Annotated[float, Field(ge=0, le=5)] | None = None

    @model_validator(mode="after")
    def _fixed_or_drawn(self) -> Self:
        if (self.seconds is None) == (self.median is None):
            raise ValueError("needs either seconds, or median and sigma")
        if self.sigma is not None and self.median is None:
            raise ValueError("sigma needs median, not seconds")
        return self


def _latencies(written: Any) -> Any:
    if isinstance(written, int | float) and not isinstance(written, bool):
        return [{"seconds": written}]
    return _in_a_list(written)


# ---- answers


class ScriptedCall(ScenarioPart):
    """A tool call by the model."""

    name: str
    arguments: Mapping[str, JsonValue] = {}
    input: str | None = None
    """For a tool that takes text instead of arguments."""

    @model_validator(mode="after")
    def _arguments_or_input(self) -> Self:
        if self.arguments and self.input is not None:
            raise ValueError("takes either arguments or input, not both")
        return self


class ScriptStep(ScenarioPart):
    """One answer of a script: text, tool calls, or both."""

    text: str | None = None
    call: str | None = None
    arguments: Mapping[str, JsonValue] = {}
    input: str | None = None
    calls: list[ScriptedCall] = []

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if self.text is None and not self.all_calls:
            raise ValueError("needs text, call or calls")
        if self.call is None and (self.arguments or self.input is not None):
            raise ValueError("arguments and input need call")
        if self.arguments and self.input is not None:
            raise ValueError("takes either arguments or input, not both")
        return self

    @property
    def all_calls(self) -> list[ScriptedCall]:
        if self.call is None:
            return self.calls
        return [
            ScriptedCall(name=self.call, arguments=self.arguments, input=self.input),
            *self.calls,
        ]


class KnownAnswer(ScenarioPart):
    """A question with its correct answer, and incorrect ones."""

    match: Pattern
    right: str
    wrong: Annotated[list[str], BeforeValidator(_in_a_list), Field(min_length=1)]


class AnswerRule(ScenarioPart):
    """A rule: which prompts it applies to, and the answer to them."""

    match: Pattern | None = None
    offers: str | None = None
    """Only for requests that offer a tool of this name."""
    echo: Literal[True] | None = None
    text: str | None = None
    script: Annotated[list[ScriptStep], Field(min_length=1)] | None = None
    right: Share | None = None
    key: list[KnownAnswer] | None = None

    @model_validator(mode="after")
    def _one_way_to_answer(self) -> Self:
        ways = [
            way for way in ("echo", "text", "script", "right") if getattr(self, way) is not None
        ]
        if len(ways) != 1:
            raise ValueError("needs one of echo, text, script or right")
        if self.key is not None and self.right is None:
            raise ValueError("key needs right")
        return self

    @model_validator(mode="after")
    def _groups_exist(self) -> Self:
        if self.match is None:
            return self
        way, written = ("script", self.script) if self.text is None else ("text", self.text)
        for number, name in _groups_in(written):
            if (number and int(number) > self.match.groups) or (
                name and name not in self.match.groupindex and name not in GROUPS_OF_REQUEST
            ):
                raise ValueError(f"{way}: match has no group '{number or name}'")
        return self


def _groups_in(written: Any) -> Iterator[tuple[str, str]]:
    """The groups that a text, or anything containing texts, refers to."""
    match written:
        case str():
            yield from GROUP.findall(written)
        case ScriptStep():
            yield from _groups_in([written.text, [one.input for one in written.all_calls]])
            yield from _groups_in([one.arguments for one in written.all_calls])
        case Mapping():
            yield from _groups_in(list(written.values()))
        case list():
            for one in written:
                yield from _groups_in(one)


def _answers(written: Any) -> Any:
    return [{"echo": True}] if written == "echo" else _in_a_list(written)


class Tokens(ScenarioPart):
    """The reported usage; unset values are counted, four characters per token."""

    input: Annotated[int, Field(ge=0)] | None = None
    output: Annotated[int, Field(ge=0)] | None = None
    cached: Annotated[int, Field(ge=0)] = 0
    reasoning: Annotated[int, Field(ge=0)] = 0


def _tokens(written: Any) -> Any:
    if isinstance(written, int) and not isinstance(written, bool):
        return {"output": written}
    return written


# ---- limits


class Headers(StrEnum):
    """Which provider's rate limit headers are sent."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"
    NONE = "none"


def _retry_after(written: Any) -> Any:
    if written is True or not isinstance(written, int | float | str):
        raise ValueError("must be seconds, the header's exact text, or false for no header")
    return written


RetryAfter = Annotated[float | str | Literal[False], WrapValidator(lambda v, _: _retry_after(v))]


class ScenarioLimits(ScenarioPart):
    """The limits of an account; unset ones are unlimited."""

    requests_per_minute: Rate | None = None
    tokens_per_minute: Rate | None = None
    concurrent: Annotated[int, Field(ge=1)] | None = None
    burst: Rate | None = None
    """Burst of requests after a pause; None: one second's worth, at least one."""
    burst_tokens: Rate | None = None
    """None: one minute's worth."""
    headers: Annotated[Headers, Field(strict=False)] | None = None
    """None: those of the request's protocol."""
    retry_after: RetryAfter | None = None
    """None: the actual wait."""


class Storm(ScenarioPart):
    """A period in which everything is refused, counted from the account's first request."""

    from_s: Seconds = 0.0
    for_s: Seconds
    retry_after: RetryAfter = False


class ScenarioAccount(ScenarioPart):
    """One account's limits, overriding the scenario's."""

    key: str | None = None
    """Its API key; None: its name."""
    limits: ScenarioLimits | None = None
    storm: Storm | None = None
    quota: Annotated[int, Field(ge=0)] | None = None


# ---- faults


class FaultKind(StrEnum):
    """What can go wrong with an answer."""

    STATUS = "status"
    DISCONNECT = "disconnect"
    HANG = "hang"
    DRIP = "drip"
    INVALID_JSON = "invalid_json"
    WRONG_USAGE = "wrong_usage"
    HALF_OPEN = "half_open"
    HTML = "html"
    REDIRECT = "redirect"
    HUGE = "huge"
    ECHO_KEY = "echo_key"


OPTIONS_OF_FAULTS = {
    "status": {FaultKind.STATUS, FaultKind.HTML, FaultKind.REDIRECT, FaultKind.ECHO_KEY},
    "retry_after": {FaultKind.STATUS},
    "message": {FaultKind.STATUS},
    "every_s": {FaultKind.DRIP},
    "usage": {FaultKind.WRONG_USAGE},
    "location": {FaultKind.REDIRECT},
    "megabytes": {FaultKind.HUGE},
    "form": {FaultKind.ECHO_KEY},
}


class Fault(ScenarioPart):
    """A fault, and the requests it applies to: those that meet every given condition."""

    kind: Annotated[FaultKind, Field(strict=False)]
    match: Pattern | None = None
    share: Share | None = None
    first: Annotated[int, Field(ge=1)] | None = None
    after_calls: Annotated[int, Field(ge=0)] = 0
    """Only after this many tool results in the conversation."""
    status: Annotated[int, Field(ge=200, le=599)] | None = None
    retry_after: RetryAfter = False
    message: str | None = None
    every_s: Annotated[float, Field(gt=0, le=3600)] = 1.0
    usage: Literal["negative", "missing", "huge", "text"] = "negative"
    location: str = "https://elsewhere.invalid/v1"
    megabytes: Annotated[float, Field(gt=0, le=1000)] = 50.0
    form: Literal["plain", "split", "base64"] = "split"

    @model_validator(mode="after")
    def _options_fit_the_kind(self) -> Self:
        for option, kinds in OPTIONS_OF_FAULTS.items():
            if option in self.model_fields_set and self.kind not in kinds:
                raise ValueError(f"{option} does not apply to kind '{self.kind}'")
        if self.kind is FaultKind.STATUS and (self.status is None or self.status < 400):
            raise ValueError("kind 'status' needs a status from 400 to 599")
        return self


# ---- the whole scenario


class Behavior(ScenarioPart):
    """Settings that may differ between models."""

    latency: Annotated[list[Latency], BeforeValidator(_latencies)] = []
    """The first that fits the prompt applies; none: no delay."""
    answers: Annotated[list[AnswerRule], BeforeValidator(_answers)] = []
    """The first that fits applies; none: echo the prompt."""
    tokens: Annotated[Tokens, BeforeValidator(_tokens)] = Tokens()
    limits: ScenarioLimits = ScenarioLimits()
    storm: Storm | None = None
    quota: Annotated[int, Field(ge=0)] | None = None
    """After this many requests, the quota is exhausted."""
    faults: list[Fault] = []


class ScenarioForm(Behavior):
    """A whole scenario."""

    about: str = ""
    """One line, for `paraval loopback --list`."""
    seed: int = 0
    key: list[KnownAnswer] = []
    """For answers with `right` and no key of their own."""
    accounts: dict[str, ScenarioAccount] = {}
    keys: list[str] | None = None
    """Accepted API keys, besides those of the accounts; None: any key, or none at all."""
    models: dict[str, Behavior] = {}
    """Settings that differ for these models."""
    models_only: bool = False
    """True: all other models are unknown."""
