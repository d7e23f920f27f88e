"""Given candidates: where they are found, their names, what is refused; and JSON lines."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from paraval.errors import RequestError
from paraval.racing.candidates.given import given_proposals
from paraval.racing.candidates.lines import (
    LONGEST_LINE,
    MOST_COMPLAINTS,
    MOST_LINES,
    ProposalReader,
)
from paraval.racing.candidates.names import natural_order, why_no_name
from paraval.racing.findings import Proposal, Proposed
from paraval.racing.request import RaceKeys, RaceRequest
from tests.repositories import commit_all, make_repository, run_git


@pytest.fixture
def repository(folder: Path) -> Path:
    """With a committed module; candidates are beside it."""
    top = folder / "repository"
    (top / "src").mkdir(parents=True)
    (top / "src/a.py").write_text("a = 1\n")
    make_repository(top)
    return top


def given_in(repository: Path, *candidates: str, **more: Any) -> tuple[Proposal, ...]:
    keys = {"test": ["true"], "bench": ["true"], "candidates": candidates, **more}
    return given_proposals(
        RaceRequest(
            name="race",
            source=None,
            folder=str(repository.parent),
            repo=str(repository),
            keys=RaceKeys.model_validate(keys),
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


# ---- what is found where


def test_a_patch_has_the_name_of_its_file_and_keeps_its_bytes(repository: Path) -> None:
    put(repository.parent, "quick.patch", text=b"--- a/x\r\n+\xff\n")
    (proposal,) = given_in(repository, "quick.patch")
    assert (proposal.name, proposal.round) == ("quick", None)
    assert proposal.patch is not None
    assert proposal.patch.encode(errors="surrogateescape") == b"--- a/x\r\n+\xff\n"
    assert proposal.content


def test_a_folder_gives_its_patches_and_folders_in_natural_order(repository: Path) -> None:
    names = ("c/v10.patch", "c/v9.diff", "c/README.md", "c/.hidden.patch", "c/whole/src/a.py")
    put(repository.parent, *names)
    found = given_in(repository, "c/")
    assert [one.name for one in found] == ["v9", "v10", "whole"]
    assert found[2].folder == str(repository.parent / "c/whole")


@pytest.mark.parametrize("named", ["c", "c/*.patch"])
def test_a_name_comes_before_those_that_begin_with_it(repository: Path, named: str) -> None:
    put(repository.parent, "c/heap-again.patch", "c/heap.patch", "c/heap2.patch")
    assert [one.name for one in given_in(repository, named)] == ["heap", "heap2", "heap-again"]


def test_a_folder_of_folders_gives_each_folder(repository: Path) -> None:
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


def test_a_glob_works_below_a_folder_with_special_characters(
    tmp_path: Path, repository: Path
) -> None:
    put(tmp_path, "[odd] *?/a2.patch", "[odd] *?/a10.patch")
    found = given_in(repository, f"{tmp_path}/[[]odd*/a*.patch")
    assert [one.name for one in found] == ["a2", "a10"]


def test_a_file_whose_name_looks_like_a_glob_is_that_file(repository: Path) -> None:
    put(repository.parent, "a[1].patch", "a1.patch")
    assert [one.name for one in given_in(repository, "a[1].patch")] == ["a[1]"]


def test_a_ref_is_fixed_to_its_commit(repository: Path) -> None:
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
        {"folder": "whole", "parent": "a"},
    ]
    put(repository.parent, "c/all.jsonl", text="\n".join(map(json.dumps, lines)))
    put(repository.parent, "c/whole/src/a.py")
    found = given_in(repository, "c/all.jsonl")
    assert [(one.name, one.note, one.parent) for one in found] == [
        ("a", "why", None),
        ("all-2", "", "a"),
    ]
    assert found[1].folder == str(repository.parent / "c/whole")


def test_the_same_file_given_twice_is_one_candidate(repository: Path) -> None:
    put(repository.parent, "c/a.patch", "c/b.patch")
    assert [one.name for one in given_in(repository, "c", "c/a.patch")] == ["a", "b"]


def test_equal_patches_have_equal_contents_whatever_their_names(repository: Path) -> None:
    put(repository.parent, "a.patch", "b.patch")
    put(repository.parent, "c.patch", text="y\n")
    a, b, c = given_in(repository, "a.patch", "b.patch", "c.patch")
    assert a.content == b.content != c.content


# ---- what is refused


def test_two_candidates_with_one_name_are_refused_with_both_places(repository: Path) -> None:
    put(repository.parent, "one/a.patch", "two/a.diff")
    (message,) = refusals(repository, "one", "two")
    above = repository.parent
    assert message == (
        f"two candidates are called 'a': {above}/one/a.patch and {above}/two/a.diff; rename one"
    )


def test_every_mistake_is_reported_together(repository: Path) -> None:
    above = repository.parent
    put(above, "baseline.patch", "notes.txt", "evil\x1b[2J.patch")
    (above / "empty").mkdir()
    put(above, "bad.jsonl", text='{"patch": 5}\nnot json\n')
    found = refusals(
        repository, "baseline.patch", "notes.txt", "evil*", "empty", "bad.jsonl", "nope", "a..b"
    )
    neither = (
        f"is not a file, folder or glob in {above}, nor a branch, tag or commit of {repository}"
    )
    assert [line.replace(f"{above}/", "") for line in found] == [
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
    assert not any("\x1b" in line for line in found)


def test_a_line_that_names_a_missing_ref_or_folder_is_refused(repository: Path) -> None:
    put(repository.parent, "c.jsonl", text='{"ref": "nope"}\n{"folder": "nowhere"}\n')
    first, second = refusals(repository, "c.jsonl")
    assert "c.jsonl: line 1: 'nope' is not a branch" in first
    assert second.endswith(f"c.jsonl: line 2: folder {repository.parent}/nowhere does not exist")


def test_a_pipe_is_refused_instead_of_read(repository: Path) -> None:
    os.mkfifo(repository.parent / "pipe.patch")
    (message,) = refusals(repository, "pipe.patch")
    assert message.endswith("pipe.patch is neither a file nor a folder")


def test_a_race_without_candidates_needs_propose(repository: Path) -> None:
    assert refusals(repository) == ["there are no candidates to race"]
    assert given_in(repository, propose=["true"]) == ()


def test_a_comparison_has_its_head_as_the_only_candidate(repository: Path) -> None:
    (proposal,) = given_in(repository, repo={"head": "main"})
    commit = run_git(repository, "rev-parse", "HEAD")
    assert (proposal.name, proposal.ref, proposal.whole) == ("main", commit, True)


# ---- names


@pytest.mark.parametrize(
    "name", ["", "  ", "Baseline", "a\nb", "a\x9bb", "a\u202eb", "a\u200bb", "\ud800", "x" * 101]
)
def test_a_text_that_cannot_be_shown_is_not_a_name(name: str) -> None:
    assert why_no_name(name) is not None


@pytest.mark.parametrize("name", ["a", "feature/x", "zwei Wörter", "名前", "-a", "x" * 100])
def test_a_text_that_can_be_shown_is_a_name(name: str) -> None:
    assert why_no_name(name) is None


@given(st.lists(st.text()))
def test_any_names_can_be_put_in_order(names: list[str]) -> None:
    assert sorted(sorted(names, key=natural_order)) == sorted(names)


# ---- JSON lines


@pytest.fixture
def reader(repository: Path) -> ProposalReader:
    return ProposalReader(repo=str(repository), folder=repository.parent, called="round-2")


def test_unnamed_lines_are_numbered_and_a_cost_may_stand_alone(reader: ProposalReader) -> None:
    text = (
        '{"patch": "a", "cost_usd": 1}\n\n{"name": "mine", "ref": "HEAD"}\r\n'
        '{"cost_usd": 0.02}\n{"patch": "b\\u2028"}'
    )
    found, cost = reader.lines(text)
    assert [one.name for one in found.proposals] == ["round-2-1", "mine", "round-2-3"]
    assert found.complaints == ()
    assert cost == pytest.approx(1.02)
    assert reader.lines('{"patch": "a"}')[1] is None


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("nonsense", "is not JSON"),
        ("[]", "must be a mapping with one of patch, ref, folder, not the list []"),
        ("{}", "has none of patch, ref, folder; a candidate needs exactly one"),
        ('{"patch": "a", "ref": "b"}', "has both patch and ref; a candidate needs exactly one"),
        ('{"patch": 5}', "patch must be text, not 5"),
        ('{"pach": "a"}', "unknown key 'pach', did you mean 'patch'?"),
        ('{"files": {"a.py": ""}}', "unknown key 'files'"),
        ('{"patch": "a", "patch": "b"}', "is not JSON: duplicate key 'patch'"),
        ('{"patch": "a", "cost_usd": NaN}', "is not JSON: NaN is not a JSON number"),
        ('{"cost_usd": -1}', "cost_usd must be a number, 0 or more, not -1"),
        ('{"cost_usd": true}', "cost_usd must be a number, 0 or more, not true"),
        ('{"patch": "a", "name": "baseline"}', "'baseline' is reserved"),
        ('{"patch": "a", "name": "round-2-1"}', "duplicate name 'round-2-1'"),
        ('{"patch": "a", "name": "\\u001b[2J"}', "a name cannot contain control characters"),
        ('{"patch": "a", "name": 5}', "name must be text, not 5"),
        ('{"patch": "\\ud800"}', "patch contains bytes that are not UTF-8"),
        ('{"ref": ""}', "ref must be text without NUL characters, not ''"),
        ('{"ref": "nowhere"}', "'nowhere' is not a branch, tag or commit"),
        ('{"folder": "a\\u0000"}', "folder must be text without NUL"),
        ('{"patch": "' + "a" * LONGEST_LINE + '"}', "characters; at most 1,048,576 are read"),
        ("[" * 200_000, "is not JSON: nested too deeply"),
    ],
    ids=lambda value: value[:30],
)
def test_a_line_that_is_no_candidate_costs_no_other(
    reader: ProposalReader, line: str, complaint: str
) -> None:
    found, _ = reader.lines(f'{{"patch": "a"}}\n{line}\n{{"patch": "b"}}\n')
    assert [one.patch for one in found.proposals] == ["a", "b"]
    (words,) = found.complaints
    assert words.startswith("line 2: ")
    assert complaint in words


def test_lines_and_complaints_are_bounded(reader: ProposalReader) -> None:
    found, _ = reader.lines('{"patch": "a"}\n' * 1500)
    assert len(found.proposals) == MOST_LINES
    assert found.complaints == ("500 more were skipped: at most 1,000 are read",)
    found, _ = reader.lines("x\n" * 100)
    assert (len(found.complaints), found.more_complaints) == (MOST_COMPLAINTS, 80)


def test_items_of_functions_are_read_like_lines(reader: ProposalReader, repository: Path) -> None:
    found, cost = reader.items([{"patch": "a"}, 5, {"cost_usd": 2}, "b", {"folder": repository}])
    assert [(one.name, one.patch) for one in found.proposals] == [
        ("round-2-1", "a"),
        ("round-2-2", "b"),
        ("round-2-3", None),
    ]
    assert found.complaints[0].startswith("item 2: must be a mapping")
    assert cost == 2


@given(text=st.text() | st.lists(st.text()).map("\n".join))
def test_any_text_can_be_read(text: str) -> None:
    found, _ = ProposalReader(repo="/", folder=Path("/"), called="x").lines(text)
    assert isinstance(found, Proposed)
    assert all(why_no_name(one.name) is None for one in found.proposals)
