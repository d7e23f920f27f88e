"""Hooks of a race: what they are told, how they answer, and what they can't spoil."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, strategies as st
from paraval.racing.candidates.json_lines import MOST_LINES, LineSource
from paraval.racing.course.steps import Base, Step, StepEnd, StepKind, finding_of, trial_of
from paraval.racing.hooks.hook_messages import Ask
from paraval.racing.hooks.hook_program import PrintedLines
from paraval.racing.hooks.hook_runner import HookRunner
from paraval.racing.report.standings import BaselineStanding, CandidateStanding, Standings, Status
from paraval.racing.step_performer import RaceContext

import paraval
from paraval.processes.children import Warden
from paraval.racing.findings import Origin, Proposal, StagedCandidate, StepFinding
from paraval.racing.request import BenchSpec, HookSpec, RaceRequest, TestSpec
from paraval.records import Attempt, AttemptResult, Outcome
from paraval.scratch import Homes
from paraval.settings import LOG_LIMIT_BYTES
from paraval.targets.command import ProcessRoom
from paraval.workspaces.pool import Pool
from tests.repositories import make_repository

BASE = Base(tree="1" * 40, commit="2" * 40)
PATCH = "--- a/x.py\n+++ b/x.py\n@@ -1 +1 @@\n-slow\n+quick\n"
GENERATE = Step(kind=StepKind.GENERATE)
REPAIR = Step(
    kind=StepKind.REPAIR,
    candidate="heap",
    tree="3" * 40,
    details={
        "kind": "repair",
        "candidate": "heap",
        "status": "failed",
        "reason": "1 of 4 tests failed",
        "tests": {"passed": 3, "failed": 1, "errors": 0, "skipped": 0},
        "differences": [{"scope": "test", "name": "test_a", "status": "failed"}],
    },
)


@dataclass
class Scene:
    """A race with one hook, and what that proposes."""

    folder: Path
    hook: HookSpec = field(default_factory=HookSpec)
    function: Callable[..., Any] | None = None
    patch: str = PATCH
    """Of the candidate that a hook is asked about."""
    applies: bool = True
    proposed: list[Proposal] = field(default_factory=list)
    """In the order in which they joined the race."""
    on_proposal: Callable[[Proposal], None] = lambda _: None
    standings: list[CandidateStanding] = field(default_factory=list)

    def room(self, warden: Warden, step: Step) -> RaceContext:
        kind = step.kind.value
        request = RaceRequest(
            name="race",
            source=None,
            folder=str(self.folder),
            repo=str(self.folder),
            test=TestSpec(command=("pytest", "-q")),
            bench=BenchSpec(command=("python", "bench.py")),
            pass_env=("RACE_KEY",),
            **{kind: self.hook},  # type: ignore[arg-type]  # the name of one of its hooks
        )
        return RaceContext(
            request=request,
            base=BASE,
            processes=ProcessRoom(
                warden=warden, run_id="race-1", homes=Homes(self.folder / "scratch")
            ),
            workspaces=cast("Pool", None),
            objects=self.folder / "objects",
            run_folder=self.folder,
            ends={(StepKind.STAGE, "heap", 1): self._staged()},
            functions={} if self.function is None else {kind: self.function},
            propose=self._propose,
        )

    def _staged(self) -> StepEnd:
        (self.folder / "heap.patch").write_text(self.patch)
        heap = Proposal(name="heap", patch=self.patch, note="a heap", depth=1, parent="list")
        return StepEnd(
            step=Step(kind=StepKind.STAGE, candidate="heap", proposal=heap),
            outcome=Outcome.PASSED,
            finding=StepFinding(staged=StagedCandidate(tree="3" * 40, normal="n")),
            artifacts={"patch": "heap.patch"} if self.applies else {},
        )

    def _propose(self, _step: Step, proposals: tuple[Proposal, ...]) -> None:
        self.proposed += proposals
        for proposal in proposals:
            self.on_proposal(proposal)

    def ask(self, step: Step = GENERATE, *, attempts: int = 1) -> AttemptResult:
        """The result of the last attempt."""

        async def perform() -> AttemptResult:
            async with Warden() as warden:
                asker = HookRunner(self.room(warden, step), self._stand)
                for number in range(1, attempts + 1):
                    result = await asker.perform(self.attempt(step, warden, number), step)
                await asker.close()
                return result

        return asyncio.run(perform())

    def _stand(self) -> Standings:
        return Standings(baseline=BaselineStanding(), candidates=tuple(self.standings))

    def attempt(self, step: Step, warden: Warden, number: int = 1) -> Attempt:
        trial = trial_of(step, 0, self.room(warden, step).request, BASE)
        return Attempt(trial=trial, number=number, folder=str(self.folder / f"attempt-{number}"))

    @property
    def names(self) -> list[str]:
        return [proposal.name for proposal in self.proposed]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    (tmp_path / "x.py").write_text("slow\n")
    make_repository(tmp_path)
    return Scene(tmp_path)


def program(script: str, **options: Any) -> HookSpec:
    options.setdefault("timeout", 20.0)
    return HookSpec(command=(sys.executable, "-uc", script), **options)


def proposals(result: AttemptResult) -> tuple[Proposal, ...]:
    asked = finding_of(result).asked
    assert asked is not None
    return asked.proposals


def complaints(result: AttemptResult) -> tuple[str, ...]:
    asked = finding_of(result).asked
    assert asked is not None
    return asked.complaints


def said(result: AttemptResult) -> str:
    assert result.error is not None
    return result.error.message


# ---- programs


def test_a_program_is_told_of_the_candidate_with_its_patch_as_json(scene: Scene) -> None:
    scene.hook = program(
        "import json, sys; told = json.load(sys.stdin); print(json.dumps({'patch': 'p',"
        " 'note': json.dumps(told)}))"
    )
    (proposal,) = proposals(scene.ask(REPAIR))
    told = json.loads(proposal.note)
    assert told["kind"] == "repair"
    assert told["candidate"] == {
        "name": "heap",
        "patch": PATCH,
        "patch_file": str(scene.folder / "heap.patch"),
        "note": "a heap",
        "parent": "list",
    }
    assert (told["status"], told["differences"][0]["name"]) == ("failed", "test_a")
    assert told["base"] == {"tree": BASE.tree, "commit": BASE.commit}
    assert told["repo"] == str(scene.folder)
    assert told["test"] == {"command": ["pytest", "-q"]}


def test_a_repair_is_its_parents_child(scene: Scene) -> None:
    scene.hook = program('print(\'{"patch": "p"}\')')
    (proposal,) = proposals(scene.ask(REPAIR))
    assert (proposal.origin, proposal.parent, proposal.depth) == (Origin.REPAIR, "heap", 2)
    assert proposal.name == "heap-repair-1"
    assert proposal.content


def test_names_of_repairs_of_repairs_stay_short_and_are_like_no_other() -> None:
    def name(parent: str, origin: Origin = Origin.REPAIR, number: int = 1) -> str:
        return LineSource(origin=origin, parent=Proposal(name=parent)).name(number)

    assert name("heap") == "heap-repair-1"
    assert name("heap-repair-1") == "heap-repair-1.1"
    assert name("heap-repair-1", number=2) == "heap-repair-1.2"
    assert name("heap-repair-1.2") == "heap-repair-1.2.1"
    assert name("heap-repair-1", Origin.REFINE) == "heap-repair-1-refine-1"
    assert name("heap-repair-one") == "heap-repair-one-repair-1"


def test_generate_is_told_of_the_race(scene: Scene) -> None:
    scene.hook = program(
        "import json, sys; told = json.load(sys.stdin); print(json.dumps({'patch': 'p',"
        " 'note': ' '.join(sorted(told))}))"
    )
    (proposal,) = proposals(scene.ask())
    assert proposal.note == "accept base bench kind limits repo test"
    assert (proposal.name, proposal.origin) == ("generate-1", Origin.GENERATE)


def test_what_is_printed_joins_the_race_while_the_program_still_runs(scene: Scene) -> None:
    """The program ends only when its first candidate has been taken."""
    scene.on_proposal = lambda one: (scene.folder / one.name).touch()
    scene.hook = program(
        "import os, time\n"
        'print(\'{"name": "first", "patch": "p"}\')\n'
        "while not os.path.exists('first'): time.sleep(0.01)\n"
        'print(\'{"name": "second", "patch": "q"}\', end=\'\')\n'
    )
    result = scene.ask()
    assert result.outcome is Outcome.PASSED
    assert scene.names == ["first", "second"], "a last line without an end counts too"
    assert tuple(scene.proposed) == proposals(result)


def test_half_a_line_is_not_taken(scene: Scene) -> None:
    scene.hook = program(
        "import sys, time\n"
        "sys.stdout.write('{\"patch\": '); sys.stdout.flush(); time.sleep(0.2); print('\"p\"}')"
    )
    result = scene.ask()
    assert len(proposals(result)) == 1
    assert complaints(result) == ()


@pytest.mark.parametrize(
    ("ending", "outcome", "words"),
    [
        ("sys.exit('no model')", Outcome.CRASHED, "exit code 1: no model"),
        ("os.kill(os.getpid(), 9)", Outcome.CRASHED, "killed by SIGKILL"),
        ("time.sleep(60)", Outcome.TIMEOUT, "timed out after 0.5 s"),
        ("sys.exit(75)", Outcome.INFRA_ERROR, "asked for a retry"),
    ],
)
def test_what_it_proposed_before_a_bad_end_counts(
    scene: Scene, ending: str, outcome: Outcome, words: str
) -> None:
    timeout = 0.5 if outcome is Outcome.TIMEOUT else 20.0
    script = f'import os, sys, time\nprint(\'{{"patch": "p"}}\')\n{ending}'
    scene.hook = program(script, timeout=timeout)
    result = scene.ask()
    assert result.outcome is outcome
    assert words in said(result)
    assert [one.patch for one in proposals(result)] == ["p"]


def test_a_program_that_is_not_there_is_a_crash_of_that_call(scene: Scene) -> None:
    scene.hook = HookSpec(command=("no-such-repairer",))
    result = scene.ask()
    assert result.outcome is Outcome.CRASHED
    assert "no-such-repairer" in said(result)


def test_a_program_need_not_listen(scene: Scene) -> None:
    """What it is told may be more than a pipe holds."""
    scene.patch = "+" * (4 << 20)
    scene.hook = program('print(\'{"patch": "p"}\')')
    result = scene.ask(REPAIR)
    assert result.outcome is Outcome.PASSED
    assert len(proposals(result)) == 1


def test_of_a_candidate_that_never_applied_it_is_told_what_that_came_with(scene: Scene) -> None:
    asks: list[Ask] = []
    scene.function = asks.append
    scene.applies = False
    scene.ask(REPAIR)
    assert asks[0].patch == PATCH
    assert "patch_file" not in asks[0].told["candidate"]


def test_another_attempt_proposes_nothing_twice(scene: Scene) -> None:
    """What it says again is known by its content; what is new joins, under a name of its own."""
    scene.hook = program(
        "import json, os, sys\n"
        "first = os.environ['PARAVAL_ATTEMPT'] == '1'\n"
        "said = ['a', 'b', 'b'] if first else ['new', 'b', 'a', 'b']\n"
        "for patch in said: print(json.dumps({'patch': patch}))\n"
        "print(json.dumps({'name': 'mine', 'patch': 'one' if first else 'other'}))\n"
        "sys.exit(75 if first else 0)"
    )
    result = scene.ask(attempts=2)
    assert result.outcome is Outcome.PASSED
    assert [(one.name, one.patch) for one in scene.proposed] == [
        ("generate-1", "a"),
        ("generate-2", "b"),
        ("generate-3", "b"),
        ("mine", "one"),
        ("generate-5", "new"),
        ("mine-2", "other"),
    ]
    assert proposals(result) == tuple(scene.proposed), "the end tells all that joined"


def test_what_it_tells_of_its_cost_is_added_up(scene: Scene) -> None:
    scene.hook = program(
        'print(\'{"patch": "p", "cost_usd": 0.25}\'); print(\'{"cost_usd": 0.5}\')'
    )
    result = scene.ask()
    assert result.spend is not None
    assert result.spend.cost_usd == pytest.approx(0.75)


def test_a_cost_that_nobody_told_is_unknown(scene: Scene) -> None:
    scene.hook = program('print(\'{"patch": "p"}\')')
    assert scene.ask().spend is None


def test_lines_that_are_no_candidate_are_complained_of_by_number(scene: Scene) -> None:
    scene.hook = program('print(\'thinking...\\n\\n{"patch": "p"}\\n{"pach": "p"}\')')
    result = scene.ask()
    assert len(proposals(result)) == 1
    assert [words.split(":")[0] for words in complaints(result)] == ["line 1", "line 4"]


def test_bytes_that_the_store_cannot_keep_are_refused(scene: Scene) -> None:
    script = 'import sys; sys.stdout.buffer.write(b\'{"patch": "\\xe9"}\\n\')'
    scene.hook = program(script)
    result = scene.ask()
    assert proposals(result) == ()
    assert "not UTF-8" in complaints(result)[0]


def test_a_folder_that_is_not_there_is_complained_of(scene: Scene) -> None:
    scene.hook = program('print(\'{"folder": "nowhere"}\\n{"patch": "p"}\')')
    result = scene.ask()
    assert len(proposals(result)) == 1
    assert "nowhere" in complaints(result)[0]


def test_a_program_may_leave_folders_that_it_proposes_in_its_own(scene: Scene) -> None:
    scene.hook = program(
        "import json, os\n"
        "place = os.path.join(os.environ['PARAVAL_FOLDER'], 'mine'); os.mkdir(place)\n"
        "open(os.path.join(place, 'x.py'), 'w').write('quick')\n"
        "print(json.dumps({'folder': place}))"
    )
    (proposal,) = proposals(scene.ask())
    assert proposal.folder is not None
    assert Path(proposal.folder, "x.py").read_text() == "quick"


def test_a_flood_is_bounded_and_said_to_be(scene: Scene) -> None:
    flood = LOG_LIMIT_BYTES + 100_000
    scene.hook = program(f"print('{{\"patch\": \"p\"}}'); print('x' * {flood})")
    result = scene.ask()
    assert len(proposals(result)) == 1
    assert "of which only the beginning and the end were kept" in " ".join(result.notes)


def test_of_endless_lines_the_first_count(scene: Scene) -> None:
    scene.hook = program(f"for n in range({MOST_LINES + 50}): print('nonsense')")
    result = scene.ask()
    asked = finding_of(result).asked
    assert asked is not None
    assert [words.split(":")[0] for words in asked.complaints] == [
        f"line {number}" for number in range(1, 21)
    ]
    assert asked.more_complaints == MOST_LINES - 20
    assert asked.remarks == ("lines after the 1,000th were not read",)


def test_a_line_past_all_bounds_is_told_and_the_lines_after_it_are_read(scene: Scene) -> None:
    scene.hook = program("print('x' * 20_000_000); print('{\"patch\": \"p\"}'); print('nonsense')")
    result = scene.ask()
    asked = finding_of(result).asked
    assert asked is not None
    assert [one.patch for one in asked.proposals] == ["p"]
    first, second = asked.complaints
    assert first == "line 1: is longer than 1 MB and was skipped"
    assert second.startswith("line 2 after the gap: is not JSON")
    (remark,) = asked.remarks
    assert remark.startswith(
        "it printed 20,000,025 bytes: 3,157,273 past the first 16 MiB were not"
    )


def test_a_long_line_is_told_and_the_lines_after_it_are_read(scene: Scene) -> None:
    scene.hook = program("print('x' * 2_000_000); print('{\"patch\": \"p\"}')")
    result = scene.ask()
    assert [one.patch for one in proposals(result)] == ["p"]
    assert complaints(result) == ("line 1: has 2,000,000 characters; at most 1,048,576 are read",)


def test_it_sees_the_users_home_and_no_variables_but_those_named(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("RACE_KEY", "k")
    monkeypatch.setenv("OTHER_KEY", "secret")
    scene.hook = program(
        "import json, os; print(json.dumps({'patch': 'p', 'note': json.dumps(dict(os.environ))}))"
    )
    (proposal,) = proposals(scene.ask())
    seen = json.loads(proposal.note)
    assert (seen["HOME"], seen["RACE_KEY"]) == ("/home/me", "k")
    assert "OTHER_KEY" not in seen


def test_a_cancelled_race_ends_the_program(scene: Scene) -> None:
    """It is gone before the cancel is through."""
    scene.hook = program(
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: (open('gone', 'w'), sys.exit()))\n"
        'print(\'{"patch": "p"}\')\n'
        "time.sleep(60)"
    )

    proposed = asyncio.Event()
    scene.on_proposal = lambda _: proposed.set()

    async def cancel() -> None:
        async with Warden() as warden:
            asker = HookRunner(scene.room(warden, GENERATE))
            task = asyncio.create_task(asker.perform(scene.attempt(GENERATE, warden), GENERATE))
            await asyncio.wait_for(proposed.wait(), 20)
            task.cancel()
            await asyncio.wait({task})
            assert task.cancelled()
            assert (scene.folder / "gone").exists()
            await asker.close()

    asyncio.run(cancel())


@given(text=st.text(st.characters(exclude_characters="\n", codec="utf-8")), cuts=st.data())
def test_lines_are_the_same_however_they_come(
    text: str, cuts: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("log") / "stdout.log"
    data = f"{text}\n{text}\n\n{text}".encode()
    cut = cuts.draw(st.integers(0, len(data)))
    printed, lines = PrintedLines(str(path)), []
    for piece in (data[:cut], data[cut:]):
        with path.open("ab") as file:
            file.write(piece)
        lines += printed.lines()
    assert [*lines, *printed.rest()] == [text, text, "", *([text] if text else [])]


# ---- what the page shows


def shown_in_the_page(language: str, words: str) -> str:
    page = (Path(__file__).parent.parent / "docs" / "how-to" / "race-hooks.md").read_text()
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    (block,) = [block for block in blocks if words in block]
    return str(block)


def test_the_repairer_of_the_page_works(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a program in the model's place that answers as models do."""
    claude = scene.folder / "bin" / "claude"
    claude.parent.mkdir()
    claude.write_text(f"#!/bin/sh\ncat <<'END'\nHere you are:\n```diff\n{PATCH}```\nEND\n")
    claude.chmod(0o755)
    monkeypatch.setenv("PATH", f"{claude.parent}:{os.environ['PATH']}")
    (scene.folder / "repair.py").write_text(shown_in_the_page("python", "claude"))
    scene.hook = HookSpec(command=(sys.executable, "repair.py"))
    result = scene.ask(REPAIR)
    (proposal,) = proposals(result)
    assert proposal.patch == PATCH
    assert proposal.note == "repairs: 1 of 4 tests failed"


@pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")
def test_the_refiner_of_the_page_works(scene: Scene) -> None:
    script = scene.folder / "refine.sh"
    script.write_text(shown_in_the_page("sh", "jq"))
    script.chmod(0o755)
    scene.patch = PATCH.replace("quick", "maxsize=8")
    scene.hook = HookSpec(command=("./refine.sh",))
    step = replace(REPAIR, kind=StepKind.REFINE)
    found = proposals(scene.ask(step))
    assert [one.patch for one in found] == [
        PATCH.replace("quick", "maxsize=64"),
        PATCH.replace("quick", "maxsize=4096"),
    ]
    assert [one.name for one in found] == ["heap-refine-1", "heap-refine-2"]


# ---- functions


async def async_function(ask: Ask) -> str:
    return f"{ask.kind} {ask.candidate}"


async def async_generator(ask: Ask) -> AsyncIterator[dict[str, str]]:
    yield {"patch": f"{ask.kind} {ask.candidate}"}


def plain_function(ask: Ask) -> list[Proposal]:
    return [Proposal(name="mine", patch=f"{ask.kind} {ask.candidate}")]


def plain_generator(ask: Ask) -> Iterator[dict[str, str]]:
    yield {"patch": f"{ask.kind} {ask.candidate}"}


class AnObject:
    async def __call__(self, ask: Ask) -> tuple[str, ...]:
        return (f"{ask.kind} {ask.candidate}",)


def an_awaitable(ask: Ask) -> Awaitable[str]:
    return async_function(ask)


@pytest.mark.parametrize(
    "function",
    [
        async_function,
        async_generator,
        plain_function,
        plain_generator,
        AnObject(),
        an_awaitable,
        lambda ask: async_generator(ask),  # noqa: PLW0108 - a plain function that gives one
    ],
)
def test_a_function_of_any_kind_proposes(scene: Scene, function: Callable[..., Any]) -> None:
    scene.function = function
    result = scene.ask(REPAIR)
    assert result.outcome is Outcome.PASSED, result.error
    assert [one.patch for one in proposals(result)] == ["repair heap"]
    assert tuple(scene.proposed) == proposals(result)


def test_a_function_is_told_what_a_program_is(scene: Scene) -> None:
    asks: list[Ask] = []
    scene.function = asks.append
    assert proposals(scene.ask(REPAIR)) == ()
    (ask,) = asks
    assert (ask.kind, ask.candidate, ask.patch, ask.status) == ("repair", "heap", PATCH, "failed")
    assert (ask.note, ask.parent, ask.commit) == ("a heap", "list", BASE.commit)
    assert ask.differences[0]["name"] == "test_a"
    assert ask.tests == {"passed": 3, "failed": 1, "errors": 0, "skipped": 0}
    assert Path(ask.folder).is_dir()
    assert ask.told["candidate"]["patch"] == PATCH
    for name in (*ask.told.keys() - {"candidate"}, *ask.told["candidate"].keys() - {"name"}):
        told = {**ask.told, **ask.told["candidate"]}[name]
        found = getattr(ask, name)
        assert (list(found) if isinstance(found, tuple) else found) == told


def test_the_page_tells_of_every_field_of_what_a_function_is_called_with() -> None:
    page = (Path(__file__).parent.parent / "docs" / "how-to" / "race-from-python.md").read_text()
    _, _, told = page.partition("It is called with an `Ask`.")
    known = re.findall(r"`(\w+)(?:\(\))?`", told.partition("\n\n")[0])
    assert {one.name for one in fields(Ask)} <= set(known)


def test_a_generator_can_look_what_became_of_its_candidates(scene: Scene) -> None:
    """An optimizer looks how candidates stand, and proposes accordingly."""
    scene.on_proposal = lambda one: scene.standings.append(
        CandidateStanding(
            name=one.name, status=Status.FAILED if one.name == "a" else Status.NOT_SHOWN
        )
    )

    async def optimize(ask: Ask) -> AsyncIterator[dict[str, str]]:
        yield {"name": "a", "patch": "p"}
        if ask.standings()[0].status is Status.FAILED:
            yield {"name": "b", "patch": "q"}

    scene.function = optimize
    scene.ask()
    assert scene.names == ["a", "b"]


def test_what_a_function_raises_ends_that_call_alone_with_its_last_line(scene: Scene) -> None:
    def raising(_ask: Ask) -> Iterator[str]:
        yield "p"
        print("thinking")
        raise KeyError("no idea")

    scene.function = raising
    result = scene.ask()
    assert result.outcome is Outcome.CRASHED
    assert "KeyError: 'no idea' (test_race_hooks.py:" in said(result)
    assert len(proposals(result)) == 1
    assert Path(result.artifacts["stdout"]).read_text() == "thinking\n"
    assert "Traceback" in Path(result.artifacts["stderr"]).read_text()


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (paraval.RateLimitedError("slow down", retry_after=7), Outcome.RATE_LIMITED),
        (paraval.TransientError("no answer"), Outcome.INFRA_ERROR),
        (SystemExit(3), Outcome.CRASHED),
        (asyncio.CancelledError(), Outcome.CRASHED),
    ],
)
@pytest.mark.parametrize("as_async", [True, False])
def test_what_is_raised_means_what_it_means_in_targets(
    scene: Scene, error: BaseException, outcome: Outcome, *, as_async: bool
) -> None:
    async def raising(_ask: Ask) -> None:
        raise error

    def raising_in_a_thread(_ask: Ask) -> None:
        raise error

    scene.function = raising if as_async else raising_in_a_thread
    result = scene.ask()
    assert result.outcome is outcome
    if outcome is Outcome.RATE_LIMITED:
        assert result.error is not None
        assert result.error.retry_after == 7


@pytest.mark.parametrize("as_async", [True, False])
def test_a_function_that_takes_too_long_is_left(scene: Scene, *, as_async: bool) -> None:
    async def waiting(_ask: Ask) -> AsyncIterator[str]:
        yield "p"
        await asyncio.sleep(60)

    def blocking(_ask: Ask) -> Iterator[str]:
        yield "p"
        time.sleep(3)

    scene.function = waiting if as_async else blocking
    scene.hook = HookSpec(timeout=0.2)
    began = time.monotonic()
    result = scene.ask()
    assert time.monotonic() - began < 2.5
    assert result.outcome is Outcome.TIMEOUT
    assert [one.patch for one in proposals(result)] == ["p"]


def test_an_endless_generator_is_ended(scene: Scene) -> None:
    ended = []

    async def endless(_ask: Ask) -> AsyncIterator[Any]:
        try:
            while True:
                yield 7
        finally:
            ended.append(True)

    scene.function = endless
    result = scene.ask()
    assert result.outcome is Outcome.PASSED
    assert ended == [True]
    assert complaints(result)[0].startswith("item 1: ")


@pytest.mark.parametrize("item", [7, {"patch": {1, 2}}, {"patch": object()}, b"p", [["p"]], {}])
def test_what_is_no_candidate_is_a_complaint(scene: Scene, item: Any) -> None:
    scene.function = lambda _ask: [item, "good"]
    result = scene.ask()
    assert result.outcome is Outcome.PASSED
    assert [one.patch for one in proposals(result)] == ["good"]
    assert complaints(result)[0].startswith("item 1: ")


def test_a_function_tells_its_cost(scene: Scene) -> None:
    scene.function = lambda _ask: [{"patch": "p", "cost_usd": 1}, {"cost_usd": 2}]
    result = scene.ask()
    assert result.spend is not None
    assert result.spend.cost_usd == 3


def test_a_function_that_is_not_here_is_said_to_be_missing(scene: Scene) -> None:
    """As in a race that was begun in Python and is gone on with by the command."""
    result = scene.ask(replace(REPAIR))
    assert result.outcome is Outcome.CRASHED
    assert "`repair` hook is a Python function" in said(result)


def test_a_function_left_behind_is_not_heard_any_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paraval.racing.hooks.hook_runner.GRACE_S", 0.01)
    left = asyncio.Event()

    async def deaf(_ask: Ask) -> AsyncIterator[str]:
        yield "p"
        while not left.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await left.wait()
        yield "late"

    async def outlast() -> AttemptResult:
        async with Warden() as warden:
            asker = HookRunner(scene.room(warden, GENERATE))
            result = await asker.perform(scene.attempt(GENERATE, warden), GENERATE)
            left.set()
            await asyncio.sleep(0.05)
            await asker.close()
            return result

    scene.function = deaf
    scene.hook = HookSpec(timeout=0.05)
    result = asyncio.run(outlast())
    assert result.outcome is Outcome.TIMEOUT
    assert [one.patch for one in scene.proposed] == ["p"]
