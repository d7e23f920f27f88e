"""The reference page of suites: up to date, and its examples load."""

from __future__ import annotations

import re
import runpy
from dataclasses import fields
from pathlib import Path

import pytest

from paraval.documents.forms import Form
from paraval.environment import PASSED_ALWAYS
from paraval.errors import RateLimitedError, TransientError
from paraval.plan.build import build_plan
from paraval.plan.schema.agent_forms import AgentTargetForm, CustomOutputForm, McpServerForm
from paraval.plan.schema.grader_forms import GRADER_FORMS
from paraval.plan.schema.model_forms import AccountLimitsForm, ModelForm, PriceForm
from paraval.plan.schema.suite_form import BudgetForm, CaseForm, SuiteForm
from paraval.plan.schema.target_forms import (
    ChatForm,
    ChatTargetForm,
    FolderWorkspaceForm,
    GitWorkspaceForm,
    MessageForm,
    TargetLimitsForm,
)
from paraval.plan.suite import Suite
from paraval.records import Attempt, Case, CommandTarget, Grade, Output, Trial
from paraval.settings import Selection
from paraval.targets.command import attempt_marks
from tests.conftest import WriteSuite
from tests.repositories import make_repository, put_on_path

DOCS = Path(__file__).parent.parent / "docs"
PAGE = (DOCS / "reference" / "suite.md").read_text(encoding="utf-8")
EXAMPLES = [one for one in re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL) if "target:" in one]


def test_the_page_is_what_the_models_say_now() -> None:
    written = runpy.run_path(str(DOCS / "generate.py"))["suite_page"]()
    assert written == PAGE, "run: python docs/generate.py"


def test_the_page_has_every_key_and_grader() -> None:
    forms: tuple[type[Form], ...] = (SuiteForm, ModelForm, AccountLimitsForm, PriceForm, BudgetForm)
    forms += (ChatTargetForm, ChatForm, MessageForm, AgentTargetForm, McpServerForm)
    forms += (CustomOutputForm, TargetLimitsForm, FolderWorkspaceForm, GitWorkspaceForm, CaseForm)
    for form in forms:
        for name, field in form.model_fields.items():
            assert f"| `{field.alias or name}` |" in PAGE
    for kind in GRADER_FORMS:
        assert f"### `{kind}`" in PAGE


def test_the_page_has_every_variable_of_a_commands_environment() -> None:
    trial = Trial(
        index=0,
        key="k",
        case=Case(id="a"),
        variant={},
        repeat=1,
        target=CommandTarget(command=("true",), cwd="/"),
    )
    marks = attempt_marks("run", Attempt(trial=trial, number=1, folder="/f"))
    for name in (*PASSED_ALWAYS, *marks, "LC_*"):
        assert f"`{name}`" in PAGE


def test_the_page_has_all_that_functions_may_return_and_raise() -> None:
    for record in (Output, Grade):
        for field in fields(record):
            # Whose it is, and how votes agreed, is not a function's to say.
            assert field.name in ("grader", "agreement", "judge") or f"{field.name}=" in PAGE
    for error in (RateLimitedError, TransientError):
        assert f"`paraval.{error.__name__}(" in PAGE


@pytest.fixture
def programs(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """The programs that the examples name, on a PATH of their own, with git."""
    put_on_path(tmp_path_factory.mktemp("bin"), monkeypatch, "claude", "codex", "repo-search")


@pytest.mark.usefixtures("programs")
@pytest.mark.parametrize(
    ("example", "trials"), list(zip(EXAMPLES, [18, 1, 3, 12, 1, 1], strict=True))
)
def test_the_examples_on_the_page_load(
    write: WriteSuite, folder: Path, example: str, trials: int
) -> None:
    make_repository(folder)
    (folder / "cases").mkdir()
    write(
        "cases/find.jsonl",
        '{"id": "find", "prompt": "Where?", "ground_truth": {"files": ["a.py"]}}\n',
    )
    (folder / "questions").mkdir()
    write("questions/all.jsonl", '{"id": "a", "input": "?", "expect": 5}\n')
    write("answers.py", "def answer(case):\n    return case.id\n")
    (folder / "suite.yaml").write_text(example)
    assert len(build_plan(Suite.load("suite.yaml"), Selection()).trials) == trials
