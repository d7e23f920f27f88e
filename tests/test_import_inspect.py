"""Logs of inspect-ai as runs: outcomes, transcripts, and both formats."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from paraval.errors import RequestError, SuiteError
from paraval.importers import inspect_logs
from paraval.importers.inspect_logs import read_log, trials_of, trials_of_task
from paraval.importers.results import ImportedTrial
from paraval.records import Outcome
from tests.conftest import Paraval

HEADER: dict[str, Any] = {
    "version": 2,
    "status": "success",
    "eval": {
        "task": "examples/capitals",
        "created": "2026-03-01T10:00:00+00:00",
        "model": "openai/gpt-5-mini",
        "task_args_passed": {"level": 2},
    },
}


def sample(name: str | int, value: Any = None, epoch: int = 1, **keys: Any) -> dict[str, Any]:
    asked = {"role": "user", "content": f"Capital of {name}?"}
    answer = {"role": "assistant", "content": "It is Paris."}
    scores = {} if value is None else {"includes": {"value": value, "explanation": "because"}}
    return {
        "id": name, "epoch": epoch, "input": asked["content"], "target": "Paris",
        "messages": [{"role": "system", "content": "Be brief."}, asked, answer],
        "output": {"choices": [{"message": answer}], "completion": "It is Paris."},
        "scores": scores, "started_at": "2026-03-01T10:00:01+00:00", "total_time": 1.5,
        "model_usage": {"m": {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}},
        **keys,
    }  # fmt: skip


def written(folder: Path, *samples: dict[str, Any], name: str = "log.json") -> Path:
    path = folder / name
    path.write_text(json.dumps({**HEADER, "samples": samples}))
    return path


def trial(folder: Path, one: dict[str, Any], **given: Any) -> ImportedTrial:
    asked = {"scorer": None, "pass_at": 1.0, **given}
    (found,) = trials_of(read_log(written(folder, one)), **asked)
    return found


def archive(path: Path, entries: dict[str, Any], *, zstandard: bool) -> None:
    """Write a zip file as inspect-ai does; Python 3.11 cannot write Zstandard into one."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as file:
        for name, data in entries.items():
            text = json.dumps(data).encode()
            file.writestr(name, pa.compress(text, "zstd", asbytes=True) if zstandard else text)
        sizes = {name: len(json.dumps(data).encode()) for name, data in entries.items()}
        infos = {info.filename: info for info in file.infolist()}
        packed = {name: info.compress_size for name, info in infos.items()}
    if not zstandard:
        return
    content = bytearray(path.read_bytes())
    for mark, method_at, size_at, name_at in ((b"PK\3\4", 8, 22, 30), (b"PK\1\2", 10, 24, 46)):
        for name in entries:
            at = content.find(name.encode())
            while content[at - name_at : at - name_at + 4] != mark:
                at = content.find(name.encode(), at + 1)
            start = at - name_at
            content[start + method_at : start + method_at + 2] = struct.pack("<H", 93)
            content[start + size_at : start + size_at + 4] = struct.pack("<I", sizes[name])
            assert packed[name]
    path.write_bytes(bytes(content))


def test_a_log_becomes_a_run_that_reports_compare_and_show_read(
    folder: Path, paraval: Paraval
) -> None:
    call = {"id": "c1", "function": "add", "arguments": {"x": 1}}
    with_tool = [
        {"role": "user", "content": "Add."},
        {"role": "assistant", "content": "I add.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "attachment://abc"},
        {"role": "assistant", "content": [{"type": "text", "text": "Three."}]},
    ]
    entries = {
        "header.json": HEADER,
        "samples/France_epoch_1.json": sample("France", "C"),
        "samples/France_epoch_2.json": sample("France", "I", epoch=2),
        "samples/3_epoch_1.json": sample(
            3, "C", messages=with_tool, attachments={"abc": "the sum is 3"}
        ),
        "samples/Oops_epoch_1.json": sample("Oops", error={"message": "ValueError('boom')"}),
    }
    archive(folder / "one.eval", entries, zstandard=True)
    ended = paraval("import", "inspect", "one.eval")
    assert "4 results stored as run" in ended.stderr
    assert "4 results already stored" in paraval("import", "inspect", "one.eval").stderr
    paraval("report", "last", "-o", "report.json")
    report = json.loads((folder / "report.json").read_text())
    outcomes = [(one["case"], one["repeat"], one["outcome"]) for one in report["trials"]]
    assert sorted(outcomes) == [
        ("3", 1, "passed"), ("France", 1, "passed"), ("France", 2, "failed"), ("Oops", 1, "crashed")
    ]  # fmt: skip
    assert report["trials"][0]["variant"] == {"level": 2, "model": "openai/gpt-5-mini"}
    shown = paraval("show", "last", "--case", "3").stdout
    assert "I add." in shown
    assert report["gate"]["verdict"] == "none"
    assert "the sum is 3" in shown


def test_scores_become_outcomes(tmp_path: Path) -> None:
    values = {"C": 1.0, "P": 0.5, "I": 0.0, True: 1.0, 0.4: 0.4, "yes": 1.0, "0.25": 0.25}
    for value, score in values.items():
        found = trial(tmp_path, sample("a", value))
        assert found.score == score
        assert (found.outcome is Outcome.PASSED) == (score == 1)
    assert trial(tmp_path, sample("a", "P"), pass_at=0.5).outcome is Outcome.PASSED
    assert trial(tmp_path, sample("a", "C")).usage == {"input_tokens": 10, "output_tokens": 5}


@pytest.mark.parametrize(
    ("keys", "outcome"),
    [
        ({"error": {"message": "boom"}}, Outcome.CRASHED),
        ({"value": "I", "limit": {"type": "message", "limit": 5}}, Outcome.TIMEOUT),
        ({"value": "C", "limit": {"type": "message", "limit": 5}}, Outcome.PASSED),
        ({}, Outcome.GRADER_ERROR),
        ({"value": float("nan")}, Outcome.GRADER_ERROR),
        ({"value": 7}, Outcome.GRADER_ERROR),
    ],
)
def test_an_error_or_a_limit_is_never_a_wrong_answer(
    tmp_path: Path, keys: dict[str, Any], outcome: Outcome
) -> None:
    assert trial(tmp_path, sample("a", **keys)).outcome is outcome


def test_one_of_several_scorers_decides(tmp_path: Path) -> None:
    scores = {"first": {"value": "I"}, "many": {"value": {"tone": 1, "length": 0.5}}}
    given = sample("a", scores=scores)
    assert trial(tmp_path, given).outcome is Outcome.FAILED
    unusable = sample("a", scores={"first": {"value": 7}, "second": {"value": "C"}})
    assert trial(tmp_path, unusable).outcome is Outcome.GRADER_ERROR
    found = trial(tmp_path, given, scorer="many.tone")
    assert found.outcome is Outcome.PASSED
    assert [grade.grader for grade in found.grades] == ["first", "many.tone", "many.length"]
    with pytest.raises(RequestError, match="no scores by 'other'"):
        trial(tmp_path, given, scorer="other")


def test_a_killed_run_has_a_journal_only(tmp_path: Path) -> None:
    path = tmp_path / "killed.eval"
    start = {key: HEADER[key] for key in ("version", "eval")}
    entries = {"_journal/start.json": start, "samples/a_epoch_1.json": sample("a", "C")}
    archive(path, entries, zstandard=False)
    log = read_log(path)
    assert (log.is_complete, log.task, len(log.samples)) == (False, "capitals", 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{\n"eval": ]', "log.json:2: not valid JSON"),
        ("{}", "not a log of inspect-ai"),
        ('{"eval": {}, "samples": [{"messages": 5}]}', "samples[0]: not a sample"),
    ],
)
def test_a_damaged_log_is_reported_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "log.json"
    path.write_text(text)
    with pytest.raises(SuiteError) as raised:
        list(trials_of(read_log(path), scorer=None, pass_at=1.0))
    assert message in str(raised.value)


@pytest.mark.parametrize(
    "keys",
    [{"epoch": 10**30}, {"epoch": -1}, {"total_time": float("nan")}, {"id": "a\ud800"}],
)
def test_a_sample_that_cannot_be_stored_is_reported(tmp_path: Path, keys: dict[str, Any]) -> None:
    with pytest.raises(SuiteError, match=r"samples\[0\]: not a sample of inspect-ai"):
        trial(tmp_path, {**sample("a", "C"), **keys})


def test_an_archive_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "bomb.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", json.dumps(HEADER))
        file.writestr("samples/a.json", " " * 5_000_000)
    monkeypatch.setattr(inspect_logs, "LARGEST_ENTRY", 1_000_000)
    with pytest.raises(SuiteError, match="is larger than 1,000,000 bytes"):
        read_log(path)
    monkeypatch.setattr(inspect_logs, "LARGEST_LOG", 2_000_000)
    with pytest.raises(SuiteError, match="unpacked, it is larger than 2,000,000 bytes"):
        read_log(path)


@pytest.mark.parametrize(("at", "value"), [(6, 1), (8, 99)], ids=["encrypted", "compressed"])
def test_an_archive_that_cannot_be_unpacked_is_reported(
    tmp_path: Path, at: int, value: int
) -> None:
    """The flags and the method are in the entry, and again in the directory, two bytes later."""
    path = tmp_path / "odd.eval"
    archive(path, {"header.json": HEADER, "samples/a.json": sample("a", "C")}, zstandard=False)
    content = bytearray(path.read_bytes())
    for mark, place in ((b"PK\3\4", at), (b"PK\1\2", at + 2)):
        start = content.find(mark)
        while start >= 0:
            content[start + place] = value
            start = content.find(mark, start + 1)
    path.write_bytes(bytes(content))
    with pytest.raises(SuiteError, match="not a zip archive, or incomplete"):
        read_log(path)


def test_an_archive_with_damaged_content_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "damaged.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", json.dumps(HEADER))
    content = bytearray(path.read_bytes())
    content[45:60] = b"\xff" * 15
    path.write_bytes(content)
    with pytest.raises(SuiteError, match="not a zip archive, or incomplete"):
        read_log(path)


def test_arguments_of_a_task_that_are_no_mapping_are_left_out(tmp_path: Path) -> None:
    header = {**HEADER, "eval": {**HEADER["eval"], "task_args_passed": ["a"]}}
    path = tmp_path / "log.json"
    path.write_text(json.dumps({**header, "samples": [sample("a", "C")]}))
    assert read_log(path).variant == {"model": "openai/gpt-5-mini"}


def test_an_archive_that_is_not_whole_says_so(tmp_path: Path) -> None:
    whole = tmp_path / "whole.eval"
    archive(whole, {"header.json": HEADER, "samples/a.json": sample("a", "C")}, zstandard=False)
    path = tmp_path / "cut.eval"
    for content in (whole.read_bytes()[:-40], b"text"):
        path.write_bytes(content)
        with pytest.raises(SuiteError, match="not a zip archive, or incomplete"):
            read_log(path)


def test_an_argument_that_a_task_was_not_given_is_a_value_of_its_own(tmp_path: Path) -> None:
    logs = [read_log(written(tmp_path, sample("a", "C")))]
    other = {**HEADER, "eval": {"task": "capitals", "model": "m"}, "samples": [sample("a", "C")]}
    (tmp_path / "other.json").write_text(json.dumps(other))
    logs.append(read_log(tmp_path / "other.json"))
    found = trials_of_task(logs, scorer=None, pass_at=1.0)
    assert [one.variant["level"] for one in found] == [2, "default"]
