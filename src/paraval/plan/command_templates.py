"""The templates of commands that are no target's: a grader's and a workspace's setup.

They are read from what is written, where each has its line; what is no text was told elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paraval.plan.cases import CaseList
from paraval.plan.fitting import Template, check_template
from paraval.plan.places import Spot, Step
from paraval.plan.placing import SUITE_FIELD
from paraval.plan.prompts import Prompt

GRADER_FIELDS = ("input", "case.id", "repeat", "python", SUITE_FIELD)
"""Not the attempt's folder: what graders look at is the answer and the workspace."""
SETUP_FIELDS = ("python", SUITE_FIELD)
"""A worktree is made ready before anyone knows for which trial."""


def check_grader_templates(
    written: Any, spot: Spot, *, axes: Sequence[str], cases: CaseList, has_workspace: bool
) -> None:
    """Tells every field in the commands of graders that some trial would not have."""
    fields = (*GRADER_FIELDS, "workspace") if has_workspace else GRADER_FIELDS
    for number, grader in enumerate(written if isinstance(written, list | tuple) else ()):
        options = grader.get("command") if isinstance(grader, Mapping) else None
        at = spot.at(number, "command")
        if isinstance(options, Mapping):
            texts = [*_items(options.get("command"), "command"), *_items(options.get("env"), "env")]
        else:
            texts = list(_items(options))
        for text, steps in texts:
            prompt = Prompt(text=text, spot=at.at(*steps))
            check_template(Template(prompt=prompt, fields=fields), axes, cases)


def check_setup_templates(written: Any, spot: Spot, cases: CaseList) -> None:
    """The same for a workspace's setup."""
    setup = written.get("setup") if isinstance(written, Mapping) else None
    for text, steps in _items(setup, "setup"):
        prompt = Prompt(text=text, spot=spot.at(*steps))
        check_template(Template(prompt=prompt, fields=SETUP_FIELDS), (), cases)


def _items(written: Any, *steps: Step) -> Iterator[tuple[str, tuple[Step, ...]]]:
    """The texts in a list or a mapping, each with the way to it."""
    pairs: list[tuple[Step, Any]]
    if isinstance(written, Mapping):
        pairs = [(str(name), value) for name, value in written.items()]
    elif isinstance(written, list | tuple):
        pairs = list(enumerate(written))
    else:
        return
    for step, text in pairs:
        if isinstance(text, str):
            yield text, (*steps, step)
