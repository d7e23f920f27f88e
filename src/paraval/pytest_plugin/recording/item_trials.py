"""Tests as trials of a plan in the store.

The case is the test and the variant is its model, so that reports and comparisons see one test with
several models.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import pytest

from paraval.dataclass import dataclass
from paraval.records import Case, FunctionTarget, Limits, Model, Plan, Scalar, Trial, Variant

# Parts of a node id: the test's file, its code, and the test without its model.

MODEL = "model"
"""The axis of a suite of tests, and the fixture that it comes from."""

_XDIST_GROUP = re.compile(r"(?P<test>::[^\[@:]+(?:\[.*\])?)@[^\]]*$")
"""The suffix that `--dist loadgroup` appends to a test's id."""


def file_of(node_id: str) -> str:
    """The test's file, relative to the rootdir, with slashes."""
    return node_id.partition("::")[0]


def without_xdist_group(node_id: str) -> str:
    # Called for every report, and most ids contain no @.
    if "@" not in node_id:
        return node_id
    return _XDIST_GROUP.sub(r"\g<test>", node_id)


def model_in(node_id: str, models: Collection[str]) -> str | None:
    """The model that a test was generated for, by its parameters.

    Prefers the first parameter, since others may also have a model's name; among matches, the
    longest.
    """
    parameters = _parameters(node_id)
    if parameters is None:
        return None
    within = f"-{parameters}-"
    fitting = [name for name in models if f"-{name}-" in within]
    return max(fitting, key=lambda name: (within.startswith(f"-{name}-"), len(name)), default=None)


def without_model(node_id: str, model: str) -> str:
    """Remove the model: `test_y[haiku-3]` -> `test_y[3]`, and `test_y[haiku]` -> `test_y`.

    The model's parameter is the first, unless a test orders it otherwise.
    """
    parameters = _parameters(node_id)
    if parameters is None:
        return node_id
    test = node_id.removesuffix(f"[{parameters}]")
    before, found, after = f"-{parameters}-".partition(f"-{model}-")
    if not found:
        return node_id
    left = "-".join(part for part in (before.removeprefix("-"), after.removesuffix("-")) if part)
    return f"{test}[{left}]" if left else test


def _parameters(node_id: str) -> str | None:
    """The text in the brackets; ids may contain brackets themselves."""
    start = node_id.find("[", node_id.find("::"))
    if start < 0 or not node_id.endswith("]"):
        return None
    return node_id[start + 1 : -1]


# ---- a test's code


DIGEST_BYTES = 16


class SourceDigests:
    """Digests of the test files under one rootdir."""

    def __init__(self, rootdir: Path) -> None:
        self._rootdir = rootdir
        self._contents: dict[Path, bytes] = {}
        self._by_file: dict[str, str] = {}

    def digest(self, node_id: str) -> str:
        """Digest of the test's file and its conftests; the same for all tests in the file."""
        file = file_of(node_id)
        if file not in self._by_file:
            self._by_file[file] = self._digest_of(self._rootdir / file)
        return self._by_file[file]

    def _digest_of(self, path: Path) -> str:
        digest = hashlib.blake2b(digest_size=DIGEST_BYTES)
        digest.update(self._content_of(path))
        for folder in path.parents:
            digest.update(self._content_of(folder / "conftest.py"))
            if folder == self._rootdir:
                break
        return digest.hexdigest()

    def _content_of(self, path: Path) -> bytes:
        """A digest of the file's content; of no content if it cannot be read."""
        if path not in self._contents:
            try:
                content = path.read_bytes()
            except (OSError, ValueError):  # A name that no file can have.
                content = b""
            self._contents[path] = hashlib.blake2b(content, digest_size=DIGEST_BYTES).digest()
        return self._contents[path]


NO_MODEL = "(no model)"
"""The variant of tests without a model, in a run where other tests have one."""
_NO_VARIANT: Variant = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTest:
    """A test that will run, with what a plan needs to know."""

    node_id: str
    model: Model | None = None
    """The model that it runs with; None: it uses none."""

    @property
    def case_id(self) -> str:
        return self.node_id if self.model is None else without_model(self.node_id, self.model.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFrame:
    """A plan without its trials."""

    name: str
    folder: str
    """The rootdir."""
    limits: Limits = field(default_factory=Limits)
    fail_under: float | None = None
    selection: Mapping[str, object] = field(default_factory=dict)


KeyOf = Callable[[PlannedTest, int], str]
"""Returns the key of a test; the number counts tests with the same node id."""


def known_test(item: pytest.Item, models: Mapping[str, Model]) -> PlannedTest:
    # A user's own fixture or parameter may have this name; its values are not our models.
    name = item.callspec.params[MODEL] if has_model(item) else None  # type: ignore[attr-defined]  # only a Function has it
    return PlannedTest(
        node_id=item.nodeid, model=models.get(name) if isinstance(name, str) else None
    )


def has_model(item: pytest.Item) -> bool:
    """Whether the test is parametrized by a model, ours or a user's own."""
    spec = getattr(item, "callspec", None)
    return spec is not None and MODEL in spec.params


def named_test(node_id: str, models: Mapping[str, Model]) -> PlannedTest:
    """Derive the test from its node id, which is all that xdist's controller has."""
    bare = without_xdist_group(node_id)
    name = model_in(bare, models)
    return PlannedTest(node_id=bare, model=None if name is None else models[name])


def plan_of(tests: Iterable[PlannedTest], *, frame: PlanFrame, key_of: KeyOf) -> Plan:
    """Plan all tests, in order. Tests with the same node id are repeats of one another."""
    tests = tuple(tests)
    seen: Counter[str] = Counter()
    alone = _NO_VARIANT if all(test.model is None for test in tests) else {MODEL: NO_MODEL}
    variants: dict[str | None, Variant] = {None: alone}
    trials = []
    for index, test in enumerate(tests):
        seen[test.node_id] += 1
        name = None if test.model is None else test.model.name
        trials.append(
            Trial(
                index=index,
                key=key_of(test, seen[test.node_id]),
                case=Case(id=test.case_id),
                variant=variants.setdefault(name, {MODEL: name or NO_MODEL}),
                repeat=seen[test.node_id],
                target=FunctionTarget(reference=test.node_id, folder=frame.folder),
            )
        )
    return Plan(
        name=frame.name,
        source=None,
        axes=_axes(trials),
        variants=tuple({id(trial.variant): trial.variant for trial in trials}.values()),
        trials=tuple(trials),
        limits=frame.limits,
        fail_under=frame.fail_under,
        selection=frame.selection,
    )


def _axes(trials: Sequence[Trial]) -> dict[str, tuple[Scalar, ...]]:
    values = {trial.variant[MODEL]: None for trial in trials if MODEL in trial.variant}
    return {MODEL: tuple(values)} if values else {}


def key_by_code(sources: SourceDigests) -> KeyOf:
    """Hash everything in the test that determines its result: its code and its model.

    The code under test is not included; the run's selection identifies it.
    """

    def key_of(test: PlannedTest, repeat: int) -> str:
        words = [test.node_id, repeat, sources.digest(test.node_id), _model_words(test.model)]
        text = json.dumps(words, sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()

    return key_of


def _model_words(model: Model | None) -> list[object]:
    """What determines its answers: never its account, key, limits, price or timeouts."""
    if model is None:
        return []
    return [model.provider, model.base_url, model.model, dict(model.options), model.scenario]
