"""Races whose candidates models write: `propose: {models: haiku, files: work.py, n: 8}`."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from paraval.cli.main import paraval as command
from paraval.errors import RequestError
from paraval.loopback.scenario import Scenario
from paraval.loopback.server import LoopbackServer
from paraval.racing.candidates.reply import proposal_from
from paraval.racing.race_file import race_of
from tests.race_kit import Track, make_track, scratch_of, track_fixture

__all__ = ["track_fixture"]

FILES = {"src/a.py": "def a():\n    return 1\n\n\ndef b():\n    return 1\n", "b.py": "x = 1\n"}
WHOLE = "Faster:\n\nsrc/a.py\n```python\ndef a():\n    return 2\n```\n"
EDIT = (
    "```\n<<<<<<< SEARCH\ndef a():  \n    return 1\n=======\ndef a():\n    return 2\n"
    ">>>>>>> REPLACE\n```"
)


@pytest.mark.parametrize(
    ("reply", "path", "text"),
    [
        (WHOLE, "src/a.py", "def a():\n    return 2\n"),
        ("### `b.py`:\n~~~python\nx = 2\n~~~", "b.py", "x = 2\n"),
        ("```python path=b.py\nx = 2\n```\nThat is all.", "b.py", "x = 2\n"),
        ("```python\n# b.py\nx = 2\n```", "b.py", "# b.py\nx = 2\n"),
        ("**a.py**\n```python\nx = 2\n```", "src/a.py", "x = 2\n"),
        ("new/c.py\n````md\n```\nx\n```\n````", "new/c.py", "```\nx\n```\n"),
        (f"src/a.py\n{EDIT}", "src/a.py", FILES["src/a.py"].replace("1", "2", 1)),
        (EDIT, "src/a.py", FILES["src/a.py"].replace("1", "2", 1)),
    ],
)
def test_a_reply_is_read_as_whole_files_or_edits(reply: str, path: str, text: str) -> None:
    proposal = proposal_from(reply, FILES, name="m-1", cut=False)
    assert (proposal.problem, proposal.patch) == ("", change(path, text))


def change(path: str, text: str) -> str:
    """The patch from FILES to a new text of one file."""
    old = FILES.get(path)
    names = ("/dev/null" if old is None else f"a/{path}", f"b/{path}")
    before, after = (one.splitlines(keepends=True) for one in (old or "", text))
    return "".join(difflib.unified_diff(before, after, *names))


def test_a_reply_with_one_block_and_no_path_is_for_the_only_file() -> None:
    files = {"b.py": FILES["b.py"]}
    proposal = proposal_from("```\nx = 2\n```", files, name="m-1", cut=False)
    assert proposal.patch == change("b.py", "x = 2\n")


def test_a_reply_may_be_a_patch_and_its_first_words_are_the_note() -> None:
    patch = "--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-x = 1\n+x = 2\n"
    proposal = proposal_from(f"Twice as\nmuch.\n```diff\n{patch}```", FILES, name="m", cut=False)
    assert (proposal.patch, proposal.note) == (patch, "Twice as much.")
    assert proposal_from(WHOLE, FILES, name="m", cut=False).note == "Faster:"


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("I'd rather not.", "has no code block"),
        ("```python\nx = 2\n```", "does not say which file its code is for"),
        ("b.py\n```python\nx = 2\n", "ends inside a code block"),
        (f"b.py\n{EDIT}", "has an edit of b.py whose SEARCH lines are not in the file"),
        (f"c.py\n{EDIT}", "edits c.py, which the model was not shown"),
        (EDIT.replace("def a():  \n", ""), "SEARCH lines occur 2 times"),
    ],
)
def test_a_reply_that_cannot_be_applied_keeps_its_reason(reply: str, reason: str) -> None:
    proposal = proposal_from(reply, FILES, name="m-1", cut=False)
    assert reason in proposal.problem
    assert proposal.patch == reply
    assert "was cut off" in proposal_from(reply, FILES, name="m-1", cut=True).problem


# ---- whole races

ANSWERS = [
    {"match": "attempt 1\\.", "text": "Quicker.\n\nseconds\n```\n0.5\n```"},
    {"match": "attempt 2\\.", "text": "seconds\n```\n0.25\n```"},
    {"match": "attempt 3\\.", "text": "answer\n```\n41\n```"},
    {"match": "attempt 4\\.", "text": "I would rather not."},
    {
        "match": "attempt 5\\.",
        "text": "```\n<<<<<<< SEARCH\n1.0\n=======\n0.5\n>>>>>>> REPLACE\n```",
    },
]
PRICE = {"input_per_million": 1000, "output_per_million": 1000}
PROMPT = "Be quick. This is attempt {attempt}. The files:\n{files}\n"


def write_race(track: Track, model: dict[str, Any] | None = None, **keys: Any) -> None:
    scenario = {"answers": ANSWERS, "tokens": {"input": 100, "output": 100}}
    (track.folder / "scenario.json").write_text(json.dumps(scenario))
    (track.folder / "prompt.md").write_text(PROMPT)
    propose = {
        "models": "sim",
        "files": ["seconds", "answer"],
        "prompt": "prompt.md",
        "rounds": 1,
        "max_tokens": 100,
    }
    race = {
        "repo": "repository",
        "test": "sh check.sh",
        "sandbox": False,
        "bench": {"command": "sh bench.sh", "metric": "out.json", "quiet": 0, "blocks": 3},
        "accept": {"unseen_results": True},
        "propose": {**propose, **keys.pop("propose")},
        **keys,
    }
    simulated = {"provider": "loopback", "scenario": "scenario.json", "price": PRICE}
    whole = {"models": {"sim": model or simulated}, "race": race}
    (track.folder / "race.json").write_text(json.dumps(whole))


def run_race(track: Track) -> dict[str, Any]:
    """The document of a race through the command."""
    output = track.folder / "out.json"
    fixed = ("--progress", "none", "--store", str(track.store), "-o", str(output))
    with scratch_of(track):
        arguments = ("race", str(track.folder / "race.json"), *fixed)
        result = CliRunner().invoke(command, arguments, standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    track.assert_nothing_is_left()
    document: dict[str, Any] = json.loads(output.read_text())
    return {**document, "text": result.stdout}


def test_a_model_writes_the_candidates_of_a_race(track: Track) -> None:
    write_race(track, propose={"n": 5})
    document = run_race(track)
    statuses = {one["name"]: one["status"] for one in document["candidates"]}
    assert statuses == {
        "sim-1": "accepted",
        "sim-2": "won",
        "sim-3": "failed",
        "sim-4": "invalid",
        "sim-5": "duplicate",
    }
    first, _, _, fourth, _ = document["candidates"]
    assert (first["round"], first["note"]) == (1, "Quicker.")
    assert fourth["reason"] == "the model's reply has no code block"
    assert document["cost"] == {"usd": pytest.approx(5 * 0.2), "unknown_calls": 0}
    assert "Cost of sim: $1.00." in document["text"]
    # Another race that asks the same gets the answer from the cache.
    write_race(track, propose={"n": 1})
    again = run_race(track)
    assert (again["winner"], again["cost"]["usd"]) == ("sim-1", 0)


def test_a_model_gets_the_standings_from_the_second_round_on(track: Track) -> None:
    """It repairs what its failure shows, and refines what was fast."""
    track.commit({"check.sh": JUNIT})
    answers = [
        {"match": r"sim-1: failed\. .*\n.*want 42[^`]*```diff", "text": "seconds\n```\n0.5\n```"},
        {"match": r"sim-1\.2: .*2\.00 times as fast", "text": "seconds\n```\n0.25\n```"},
        {"match": "attempt 1\\.", "text": "answer\n```\n41\n```"},
    ]
    write_race(track, propose={"n": 1, "rounds": 3}, test="sh check.sh {junit}")
    scenario = {"answers": [answers[1], answers[0], answers[2]]}
    (track.folder / "scenario.json").write_text(json.dumps(scenario))
    document = run_race(track)
    found = [(one["name"], one["round"], one["status"]) for one in document["candidates"]]
    assert found == [("sim-1", 1, "failed"), ("sim-1.2", 2, "accepted"), ("sim-1.3", 3, "won")]


JUNIT = """\
. ./work.sh; test "$(cat answer)" = 42 || bad="<failure message='want 42'/>"
echo "<testsuite><testcase classname='t' name='answer'>$bad</testcase></testsuite>" >"$1"
test "$(cat answer)" = 42
"""


def test_no_model_is_called_beyond_the_budget_of_a_race(track: Track) -> None:
    write_race(track, propose={"n": 4}, limits={"usd": 0.7, "parallel": 2})
    document = run_race(track)
    assert 0 < document["cost"]["usd"] <= 0.7
    assert any("was not called: " in note for note in document["notes"])
    assert document["candidates"]


def test_a_race_that_is_killed_does_not_pay_for_its_candidates_again(tmp_path: Path) -> None:
    track = make_track(tmp_path)
    hold, begun = track.folder / "hold", track.folder / "begun"
    wait = f"touch {begun}\nwhile [ -e {hold} ]; do sleep 0.05; done"
    track.commit({"work.sh": f'if [ "$(cat seconds)" = 0.5 ]; then\n{wait}\nfi\n'})
    hold.touch()
    asyncio.run(_killed_and_resumed(track, hold, begun))


def _await(file: Path) -> None:
    deadline = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.5)  # the other answer was recorded by then


async def _killed_and_resumed(track: Track, hold: Path, begun: Path) -> None:
    scenario = Scenario.load({"answers": ANSWERS, "tokens": {"input": 100, "output": 100}})
    async with LoopbackServer(scenario) as server:
        model = {"provider": "openai", "model": "sim", "base_url": server.base_url, "price": PRICE}
        write_race(track, model, propose={"n": 2})
        env = {**os.environ, "PARAVAL_STORE": str(track.store)}
        paraval = [sys.executable, "-m", "paraval"]
        started = await asyncio.create_subprocess_exec(
            *paraval, "race", "race.json", "--progress", "none", cwd=track.folder, env=env
        )
        await asyncio.to_thread(_await, begun)
        started.send_signal(signal.SIGKILL)
        await started.wait()
        await asyncio.to_thread(hold.unlink)
        resumed = await asyncio.create_subprocess_exec(
            *paraval, "resume", "last", "--progress", "none", "-o", "out.json",
            cwd=track.folder, env=env, stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        assert await resumed.wait() == 0
        assert server.stats().total.requests == 2
    document = json.loads((track.folder / "out.json").read_text())
    assert (document["winner"], document["run"]["resumed"]) == ("sim-2", 1)
    assert document["cost"]["usd"] == pytest.approx(2 * 0.2)


# ---- mistakes


def asked(track: Track, **propose: Any) -> Any:
    race = {
        "repo": track.repo,
        "test": ["sh", "check.sh"],
        "bench": ["sh", "bench.sh"],
        "models": {"sim": {"provider": "loopback"}},
        "propose": {"models": "sim", "files": "bench.sh", **propose},
    }
    return race_of(race, track.folder)


@pytest.mark.parametrize(
    ("propose", "words"),
    [
        ({"models": "simm"}, "propose.models: unknown model 'simm', did you mean 'sim'?"),
        ({"files": []}, "propose: models need `files`"),
        ({"files": "nowhere"}, "propose.files: 'nowhere' is not a text file in commit HEAD"),
        ({"prompt": "{file}"}, "propose.prompt: unknown field {file}, did you mean 'files'?"),
        ({"prompt": "gone.md"}, "propose.prompt: 'gone.md': no such file"),
        ({"command": "sh"}, "propose: has both a command and models; remove one of them"),
        ({"m": 1}, "propose.m: unknown key 'm'"),
        ({"n": 0}, "propose.n: must be a whole number from 1 to 200"),
    ],
)
def test_mistakes_are_found_before_a_model_is_asked(
    track: Track, propose: dict[str, Any], words: str
) -> None:
    with pytest.raises(RequestError) as refused:
        asked(track, **propose)
    assert words in refused.value.message


def test_a_prompt_without_the_files_gets_them_at_its_end(track: Track) -> None:
    prompt = asked(track, prompt="Go {n}!").prompt
    assert prompt.startswith("Go 4!\n\nbench.sh\n```\n. ./timed.sh\n")
    assert "<<<<<<< SEARCH" in prompt
