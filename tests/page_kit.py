"""Runs for the tests of the page: made up, with logs and changes on disk, and hostile ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paraval.records import (
    PATCH,
    AttemptRecord,
    AttemptResult,
    Case,
    Exchange,
    Failure,
    Grade,
    Outcome,
    Output,
    RunInfo,
    Step,
    ToolCall,
    TrialResult,
    Variant,
)
from paraval.report.report import Report

PAYLOADS = (
    "</script><script>window.ran = 1</script><!--<script>",
    "<img src=x onerror=window.ran=1>",
    "<svg onload=window.ran=1><animate onbegin=window.ran=1 attributeName=x dur=1s>",
    '"><script>window.ran=1</script>',
    "' onfocus=window.ran=1 autofocus tabindex=1 x='",
    '" onmouseover="window.ran=1" style="position:fixed;inset:0" x="',
    "javascript:window.ran=1",
    '<a href="javascript:window.ran=1">x</a>',
    "{{7*7}}{% for x in ().__class__.__base__.__subclasses__() %}{{x}}{% endfor %}",
    "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "</style><style>*{display:none}</style>",
    "</pre></details></section></main><h1>owned</h1>",
    '<meta http-equiv="refresh" content="0;url=http://evil.example/">',
    '<base href="http://evil.example/">',
    "<iframe srcdoc='<script>parent.ran=1</script>'></iframe>",
    "<link rel=stylesheet href=http://evil.example/x.css>",
    '<form action="http://evil.example/"><button autofocus formaction="javascript:ran=1">',
    "&lt;script&gt;window.ran=1&lt;/script&gt; &#x3c;img src=x&#x3e; &amp;amp;",
    "null\x00byte \x1b[2J\x1b]8;;http://evil.example\x07link\x1b]8;;\x07",
    "\u202egnp.exe\u202c \u2066x\u2069 \u200b\ufeff",
    "<math><mtext><table><mglyph><style><img src=x onerror=window.ran=1>",
    "<object data=http://evil.example/x></object><embed src=http://evil.example/y>",
    "<details open ontoggle=window.ran=1><summary>x</summary>",
    "<video><source onerror=window.ran=1></video><noscript><p title='</noscript><img src=x>'>",
    "http://evil.example/ www.evil.example mailto:x@evil.example",
    "`${window.ran=1}` %3Cscript%3E \\u003cscript\\u003e",
    "\udc80\ud800 lone, 日本語" + "w" * 400,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeRun:
    """A source of results, attempts and cases that somebody made up."""

    trials: Sequence[TrialResult] = ()
    tries: Sequence[AttemptRecord] = ()
    asked: Sequence[Case] = ()
    info_with: dict[str, Any] = field(default_factory=dict)
    sent: Mapping[int, tuple[Exchange, ...]] = field(default_factory=dict)

    def info(self) -> RunInfo:
        usual = RunInfo(
            id="20260131-120000-abcd",
            suite="greetings",
            source=None,
            folder="/nowhere",
            trials=len(self.trials),
            parallel=4,
            seed=1,
            started_at=1_769_860_800.25,
            ended_at=1_769_860_802.25,
            wall_s=2.0,
            resumed=0,
            interrupted=False,
            fail_under=None,
            done=len(self.trials),
        )
        return replace(usual, **self.info_with)

    def results(self) -> Iterator[TrialResult]:
        return iter(self.trials)

    def attempts(self) -> Iterator[AttemptRecord]:
        return iter(self.tries)

    def cases(self) -> Iterator[Case]:
        return iter(self.asked)

    def tags(self) -> dict[str, tuple[str, ...]]:
        return {case.id: case.tags for case in self.asked if case.tags}

    def exchanges(self, index: int, number: int | None = None) -> tuple[Exchange, ...]:
        return self.sent.get(index, ())


def asking(
    text: str, *, model: str = "m", reply: str | None = None, by: str = "", **options: Any
) -> Exchange:
    """A chat with a system text."""
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}]
    request = {"model": model, "provider": "openai", "messages": messages, **options}
    return Exchange(by=by, request=request, reply=reply)


def end_of(
    outcome: Outcome, *, text: str = "hi", why: str = "not so", **other: Any
) -> AttemptResult:
    judged, passed = outcome.is_judged, outcome is Outcome.PASSED
    grade = Grade(score=float(passed), passed=passed, reason=why, grader="contains")
    usual: dict[str, Any] = {
        "output": Output(text=text, cost_usd=0.01) if judged else None,
        "grades": (grade,) if judged else (),
        "score": float(passed) if judged else None,
        "error": None if judged else Failure(kind=outcome, message=why),
        "duration_s": 0.5,
    }
    return AttemptResult(outcome=outcome, **(usual | other))


def trial(index: int, case: str, variant: Variant, end: AttemptResult, **other: Any) -> TrialResult:
    usual: dict[str, Any] = {"repeat": 1, "attempts": 1, "total_s": end.duration_s}
    return TrialResult(index=index, case_id=case, variant=variant, result=end, **(usual | other))


def tries_of(result: TrialResult, *before: AttemptResult) -> Iterator[AttemptRecord]:
    """The attempts at a trial: those before, then the one that decided."""
    for number, end in enumerate((*before, result.result), start=1):
        yield AttemptRecord(
            index=result.index,
            case_id=result.case_id,
            variant=result.variant,
            repeat=result.repeat,
            number=number,
            started_at=1_769_860_800.25 + result.index / 10 + number,
            folder=f"artifacts/{result.index}/{number}",
            result=end,
        )


def plain_run(**info: Any) -> Report:
    """Three cases, two variants, every kind of end."""
    ends = [
        ("one", Outcome.PASSED, Outcome.FAILED),
        ("two", Outcome.PASSED, Outcome.TIMEOUT),
        ("three", Outcome.PASSED, Outcome.PASSED),
    ]
    trials = [
        trial(2 * row + column, case, {"model": model}, end_of(outcome))
        for row, (case, *outcomes) in enumerate(ends)
        for column, (model, outcome) in enumerate(zip(("small", "large"), outcomes, strict=True))
    ]
    refused = end_of(Outcome.RATE_LIMITED, why="too many requests")
    tries = [
        attempt
        for each in trials
        for attempt in tries_of(each, *((refused,) if each.index == 3 else ()))
    ]
    asked = [Case(id=case, input=f"say {case}", expect={"words": [case]}) for case, *_ in ends]
    return Report(MadeRun(trials=trials, tries=tries, asked=asked, info_with=info))


def hostile_run(folder: Path) -> Report:
    """Every payload in every place that text of others can come to."""
    trials: list[TrialResult] = []
    tries: list[AttemptRecord] = []
    asked: list[Case] = []
    ends = (Outcome.PASSED, Outcome.FAILED, Outcome.CRASHED, Outcome.SKIPPED)
    for number, payload in enumerate(PAYLOADS):
        artifacts = _left_in(folder, number, payload)
        asked.append(Case(id=payload, input=payload, expect={payload: [payload]}, tags=(payload,)))
        for column, outcome in enumerate(ends):
            end = end_of(
                outcome, text=payload, why=payload, artifacts=artifacts, notes=(payload, payload)
            )
            end = replace(end, node=payload)
            grades = tuple(replace(grade, grader=payload) for grade in end.grades)
            # Variants are as many as payloads: one of them for each would be a wide table.
            variant = {payload if number < 6 else "axis": payload if number < 6 else column}
            index = len(trials)
            trials.append(trial(index, payload, variant, replace(end, grades=grades)))
            again = (end_of(Outcome.INFRA_ERROR, why=payload, artifacts=artifacts),)
            tries.extend(tries_of(trials[-1], *again))
    made = MadeRun(
        trials=trials,
        tries=tries,
        asked=asked,
        sent={result.index: hostile_exchanges(result.case_id) for result in trials},
        info_with={"suite": PAYLOADS[0], "folder": str(folder)},
    )
    return Report(made)


def hostile_exchanges(payload: str) -> tuple[Exchange, ...]:
    call = ToolCall(name=payload, arguments={payload: payload}, result=payload, failed=True)
    steps = (Step(text=payload, tool_calls=(call,)),)
    agent = Exchange(
        request={"agent": payload, "model": payload, "system": payload, "prompt": payload * 40},
        steps=steps,
    )
    judge = asking(payload, model=payload, by=payload, reply=payload, tools=[payload])
    return agent, replace(judge, request={**judge.request, payload: payload})


def _left_in(folder: Path, number: int, payload: str) -> dict[str, str]:
    """A log and a patch, and a grader's log that is named by the payload."""
    place = folder / "artifacts" / str(number)
    place.mkdir(parents=True)
    raw = payload.encode(errors="surrogatepass")
    (place / "stdout.log").write_bytes(raw + b"\xff\xfe")
    (place / "patch").write_bytes(b"diff --git a b\n@@ -1 +1 @@\n-" + raw + b"\n+" + raw + b"\n")
    log = f"artifacts/{number}/stdout.log"
    return {
        "stdout": log,
        f"{payload}.stderr": log,
        PATCH: f"artifacts/{number}/patch",
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class LargeRun(MadeRun):
    """Many trials, made when asked for, as a store reads them."""

    number: int = 5_000
    answer: str = "an answer of some length, as models give them\n" * 10

    def info(self) -> RunInfo:
        return replace(MadeRun.info(self), trials=self.number)

    def results(self) -> Iterator[TrialResult]:
        passed = end_of(Outcome.PASSED, text=self.answer)
        failed = end_of(Outcome.FAILED, text=self.answer)
        for index in range(self.number):
            end = failed if index % 13 == 0 else passed
            yield trial(index, f"case-{index // 10}", {"model": f"m{index % 10}"}, end)

    def attempts(self) -> Iterator[AttemptRecord]:
        for result in self.results():
            yield from tries_of(result)

    def cases(self) -> Iterator[Case]:
        return (Case(id=f"case-{number}", input="what?") for number in range(self.number // 10))

    def tags(self) -> dict[str, tuple[str, ...]]:
        return {}
