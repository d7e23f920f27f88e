"""The candidates that are given: what is found at each place, how it is named, what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from paraval.racing.candidates.json_lines import (
    LONGEST_LINE,
    MOST_COMPLAINTS,
    MOST_LINES,
    LineSource,
    read_answer,
    read_items,
)
from paraval.racing.candidates.proposals import given_proposals

from paraval.errors import RequestError
from paraval.racing.candidates.names import natural_order, why_no_name
from paraval.racing.findings import Origin, Proposal
from paraval.racing.request import BenchSpec, HookSpec, RaceRequest, TestSpec
from tests.repositories import commit_all, make_repository, run_git


@pytest.fixture
def repository(folder: Path) -> Path:
    """With a module and tests, committed; candidates are beside it."""
    top = folder / "repository"
    (top / "src").mkdir(parents=True)
    (top / "src/a.py").write_text("a = 1\n")
    make_repository(top)
    return top


def given_in(repository: Path, *candidates: str, generate: bool = False) -> tuple[Proposal, ...]:
    return given_proposals(
        RaceRequest(
            name="race",
            source=None,
            folder=str(repository.parent),
            repo=str(repository),
            test=TestSpec(command=("true",)),
            bench=BenchSpec(command=("true",)),
            candidates=candidates,
            generate=HookSpec(command=("true",)) if generate else None,
        )
    )


def refusals(repository: Path, *candidates: str) -> list[str]:
    with pytest.raises(RequestError) as refused:
        given_in(repository, *candidates)
    return refused.value.message.split("\n")


def put(folder: Path, *names: str, text: str | bytes = "x\n") -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())


# ---- what stands where


def test_a_patch_is_named_after_its_file_and_kept_byte_by_byte(repository: Path) -> None:
    put(repository.parent, "quick.patch", text=b"--- a/x\r\n+\xff\n")
    (proposal,) = given_in(repository, "quick.patch")
    assert (proposal.name, proposal.origin) == ("quick", Origin.GIVEN)
    assert proposal.patch is not None
    assert proposal.patch.encode(errors="surrogateescape") == b"--- a/x\r\n+\xff\n"
    assert proposal.content


def test_a_folder_of_patches_gives_each_of_them_as_people_count(repository: Path) -> None:
    names = ("c/v10.patch", "c/v9.diff", "c/README.md", "c/.hidden.patch", "c/whole/src/a.py")
    put(repository.parent, *names)
    found = given_in(repository, "c/")
    assert [one.name for one in found] == ["v9", "v10", "whole"]
    assert found[2].folder == str(repository.parent / "c/whole")


@pytest.mark.parametrize("named", ["c", "c/*.patch"])
def test_a_name_comes_before_those_that_begin_with_it(repository: Path, named: str) -> None:
    put(repository.parent, "c/heap-again.patch", "c/heap.patch", "c/heap2.patch")
    assert [one.name for one in given_in(repository, named)] == ["heap", "heap2", "heap-again"]


def test_a_folder_of_folders_gives_each_of_them(repository: Path) -> None:
    put(repository.parent, "c/one/src/a.py", "c/two/src/a.py", "c/.cache/x")
    found = given_in(repository, "c")
    assert [(one.name, one.folder) for one in found] == [
        (name, str(repository.parent / "c" / name)) for name in ("one", "two")
    ]


@pytest.mark.parametrize("files", [("c/src/a.py",), ("c/a.py", "c/src/a.py"), ("c/b.py",)])
def test_a_folder_laid_out_as_the_repository_is_one_candidate(
    repository: Path, files: tuple[str, ...]
) -> None:
    put(repository.parent, *files)
    (proposal,) = given_in(repository, "c")
    assert (proposal.name, proposal.folder) == ("c", str(repository.parent / "c"))


def test_a_glob_gives_what_it_fits_also_below_a_folder_of_odd_name(
    tmp_path: Path, repository: Path
) -> None:
    put(tmp_path, "[odd] *?/a2.patch", "[odd] *?/a10.patch")
    found = given_in(repository, f"{tmp_path}/[[]odd*/a*.patch")
    assert [one.name for one in found] == ["a2", "a10"]


def test_a_file_whose_name_looks_like_a_glob_is_that_file(repository: Path) -> None:
    put(repository.parent, "a[1].patch", "a1.patch")
    assert [one.name for one in given_in(repository, "a[1].patch")] == ["a[1]"]


def test_refs_are_held_to_the_commit_they_stand_for(repository: Path) -> None:
    run_git(repository, "checkout", "-q", "-b", "feature/quick")
    put(repository, "src/a.py", text="a = 2\n")
    commit = commit_all(repository)
    run_git(repository, "tag", "v2")
    found = given_in(repository, "feature/quick", "v2", commit[:12])
    assert [(one.name, one.ref) for one in found] == [
        (name, commit) for name in ("feature/quick", "v2", commit[:12])
    ]
    assert len({one.content for one in found}) == 1


def test_json_lines_give_candidates_with_notes(repository: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"name": "a", "patch": "p", "note": "why"},
        {"files": {"src/a.py": "a = 3\n", "src/b.py": None}, "description": "how"},
        {"folder": "whole"},
    ]
    put(repository.parent, "c/all.jsonl", text="\n".join(map(json.dumps, lines)))
    put(repository.parent, "c/whole/src/a.py")
    found = given_in(repository, "c/all.jsonl")
    assert [(one.name, one.note) for one in found] == [
        ("a", "why"),
        ("all-2", "how"),
        ("all-3", ""),
    ]
    assert found[1].files == {"src/a.py": "a = 3\n", "src/b.py": None}
    assert found[2].folder == str(repository.parent / "c/whole")


def test_the_same_file_given_twice_is_one_candidate(repository: Path) -> None:
    put(repository.parent, "c/a.patch", "c/b.patch")
    assert [one.name for one in given_in(repository, "c", "c/a.patch")] == ["a", "b"]


def test_what_is_proposed_decides_the_content_and_not_its_name(repository: Path) -> None:
    put(repository.parent, "a.patch", "b.patch")
    put(repository.parent, "c.patch", text="y\n")
    a, b, c = given_in(repository, "a.patch", "b.patch", "c.patch")
    assert a.content == b.content != c.content


# ---- what is refused


def test_two_candidates_of_one_name_are_refused_and_both_are_named(repository: Path) -> None:
    put(repository.parent, "one/a.patch", "two/a.diff")
    (message,) = refusals(repository, "one", "two")
    above = repository.parent
    assert message == (
        f"two candidates are called 'a': {above}/one/a.patch and {above}/two/a.diff; rename one"
    )


def test_all_that_is_wrong_is_told_at_once(repository: Path) -> None:
    above = repository.parent
    put(above, "baseline.patch", "notes.txt", "evil\x1b[2J.patch")
    (above / "empty").mkdir()
    put(above, "bad.jsonl", text='{"patch": 5}\nnot json\n')
    told = refusals(
        repository, "baseline.patch", "notes.txt", "evil*", "empty", "bad.jsonl", "nope", "a..b"
    )
    neither = (
        f"is not a file, folder or glob in {above}, nor a branch, tag or commit of {repository}"
    )
    assert [line.replace(f"{above}/", "") for line in told] == [
        line.replace(f"{above}/", "")
        for line in (
            (
                "candidate 'baseline.patch': 'baseline' is reserved for the unmodified repository;"
                " choose another name"
            ),
            (
                "candidate notes.txt is not a patch: patches end in .patch or .diff, JSON lines"
                " in .jsonl; put replacement files in a folder"
            ),
            (
                "candidate 'evil\\x1b[2J.patch': a name cannot contain control characters:"
                " 'evil\\x1b[2J'"
            ),
            "candidate empty is an empty folder",
            "bad.jsonl: line 1: patch must be text, not 5",
            'bad.jsonl: line 2: is not JSON: Expecting value at line 1, column 1, near "not json"',
            f"candidate 'nope' {neither}",
            f"candidate 'a..b' {neither}",
        )
    ]
    assert not any("\x1b" in line for line in told)


def test_a_line_that_names_what_is_not_there_is_refused(repository: Path) -> None:
    put(repository.parent, "c.jsonl", text='{"ref": "nope"}\n{"folder": "nowhere"}\n')
    above = repository.parent
    (message,) = refusals(repository, "c.jsonl")
    assert message.startswith(f"candidate {above}/c.jsonl (candidate 1): 'nope' is not a branch")


def test_what_is_no_file_is_refused_and_not_waited_for(repository: Path) -> None:
    os.mkfifo(repository.parent / "pipe.patch")
    (message,) = refusals(repository, "pipe.patch")
    assert message.endswith("pipe.patch is neither a file nor a folder")


def test_no_candidate_is_refused_unless_some_are_generated(repository: Path) -> None:
    assert refusals(repository) == ["there are no candidates to race"]
    assert given_in(repository, generate=True) == ()


# ---- names


@pytest.mark.parametrize(
    "name", ["", "  ", "Baseline", "a\nb", "a\x9bb", "a\u202eb", "a\u200bb", "\ud800", "x" * 101]
)
def test_what_could_not_be_shown_as_it_is_is_no_name(name: str) -> None:
    assert why_no_name(name) is not None


@pytest.mark.parametrize("name", ["a", "feature/x", "zwei Wörter", "名前", "-a", "x" * 100])
def test_what_can_be_shown_is_a_name(name: str) -> None:
    assert why_no_name(name) is None


@given(st.lists(st.text()))
def test_any_names_can_be_put_in_order(names: list[str]) -> None:
    assert sorted(sorted(names, key=natural_order)) == sorted(names)


# ---- JSON lines, as hooks print them

GENERATOR = LineSource(origin=Origin.GENERATE)
PARENT = Proposal(name="quick", patch="p", depth=1)


def test_repairs_are_named_after_what_they_repair() -> None:
    asked = read_answer(
        '{"patch": "a"}\n\n{"name": "mine", "ref": "HEAD"}\r\n{"patch": "b"}\n',
        LineSource(origin=Origin.REPAIR, parent=PARENT, taken=2),
    ).asked
    assert [one.name for one in asked.proposals] == ["quick-repair-3", "mine", "quick-repair-5"]
    assert {(one.parent, one.depth, one.origin) for one in asked.proposals} == {
        ("quick", 2, Origin.REPAIR)
    }
    assert asked.complaints == ()


def test_what_is_generated_is_numbered_past_names_that_were_chosen() -> None:
    asked = read_answer(
        '{"name": "generate-2", "patch": ""}\n{"patch": ""}\n',
        GENERATOR,
    ).asked
    assert [one.name for one in asked.proposals] == ["generate-2", "generate-3"]


def test_costs_are_added_up_whether_a_candidate_stands_beside_them_or_not() -> None:
    answer = read_answer(
        '{"cost_usd": 0.02}\n{"patch": "a", "cost_usd": 1}\n', LineSource(origin=Origin.GENERATE)
    )
    assert answer.cost_usd == pytest.approx(1.02)
    assert len(answer.asked.proposals) == 1
    assert read_answer('{"patch": "a"}', LineSource(origin=Origin.GENERATE)).cost_usd is None


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nonsense", "is not JSON"),
        ("[]", "must be a mapping with one of patch, files, ref, folder, not the list []"),
        ("{}", "has none of patch, files, ref, folder; a candidate needs exactly one"),
        ('{"patch": "a", "ref": "b"}', "has both patch and ref; a candidate needs exactly one"),
        ('{"patch": 5}', "patch must be text, not 5"),
        ('{"pach": "a"}', "unknown key 'pach', did you mean 'patch'?"),
        ('{"patch": "a", "patch": "b"}', "is not JSON: duplicate key 'patch'"),
        ('{"patch": "a", "cost_usd": NaN}', "is not JSON: NaN is not a JSON number"),
        ('{"cost_usd": -1}', "cost_usd must be a number, 0 or more, not -1"),
        ('{"cost_usd": true}', "cost_usd must be a number, 0 or more, not true"),
        ('{"patch": "a", "name": "baseline"}', "'baseline' is reserved"),
        ('{"patch": "a", "name": "\\u001b[2J"}', "a name cannot contain control characters"),
        ('{"patch": "a", "name": 5}', "name must be text, not 5"),
        ('{"patch": "\\ud800"}', "patch contains a lone surrogate"),
        ('{"files": {}}', "files must be a mapping of paths to texts, not the mapping {}"),
        ('{"files": {"a": 5}}', "files: 'a' must have a text, or null to delete it"),
        ('{"ref": ""}', "ref must be non-empty text"),
        ('{"folder": "a\\u0000"}', "folder must be non-empty text"),
        ('{"patch": "' + "a" * LONGEST_LINE + '"}', "characters; at most 1,048,576 are read"),
        ("[" * 200_000, "is not JSON: nested too deeply"),
    ],
    ids=lambda value: value[:30],
)
def test_a_line_that_is_no_candidate_costs_no_other(line: str, complaint: str) -> None:
    text = f'{{"patch": "a"}}\n{line}\n{{"patch": "b"}}\n'
    asked = read_answer(text, GENERATOR).asked
    assert [one.patch for one in asked.proposals] == ["a", "b"]
    (told,) = asked.complaints
    assert told.startswith("line 2: ")
    assert complaint in told


def test_lines_and_complaints_are_bounded() -> None:
    asked = read_answer('{"patch": "a"}\n' * 1500, GENERATOR).asked
    assert len(asked.proposals) == MOST_LINES
    assert asked.complaints == ("line 1001: and 499 more were skipped: at most 1,000 are read",)
    asked = read_answer("x\n" * 100, GENERATOR).asked
    assert len(asked.complaints) == MOST_COMPLAINTS + 1
    assert asked.complaints[-1] == "and 80 more like these"


def test_items_of_functions_are_read_as_lines_are() -> None:
    answer = read_items(
        [{"patch": "a"}, 5, {"cost_usd": 2}], LineSource(origin=Origin.REFINE, parent=PARENT)
    )
    assert [one.name for one in answer.asked.proposals] == ["quick-refine-1"]
    assert answer.asked.complaints[0].startswith("item 2: must be a mapping")
    assert answer.cost_usd == 2


@given(st.text() | st.lists(st.text()).map("\n".join))
def test_no_text_breaks_the_reading(text: str) -> None:
    for proposal in read_answer(text, GENERATOR).asked.proposals:
        assert why_no_name(proposal.name) is None
