"""Tests as trials: for the engine, which runs them, and for a plan in the store.

In a plan the case is the test and the variant the model that it runs with, so that reports and
comparisons see one test with several models. What else is known of a test (whether it must run
alone, what it needs) is for `planning` to find out.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest

from paraval.pytest_plugin.recording.node_ids import (
    DIGEST_BYTES,
    MODEL,
    SourceDigests,
    model_in,
    without_model,
    without_xdist_group,
)
from paraval.records import Case, FunctionTarget, Limits, Model, Plan, Scalar, Trial, Variant

NO_MODEL = "(no model)"
"""The variant of tests that ask for no model, in a run where others do."""
_NO_VARIANT: Variant = {}


# ---- for the engine


def trial_of(
    item: pytest.Item, index: int, *, needs: tuple[str, ...] = (), exclusive: bool = False
) -> Trial:
    """A test as the engine runs it. Its node id does as its key: nothing is kept of it there."""
    return Trial(
        index=index,
        key=item.nodeid,
        case=Case(id=item.nodeid),
        variant=_NO_VARIANT,
        repeat=1,
        target=FunctionTarget(reference=item.nodeid, folder=""),
        needs=needs,
        exclusive=exclusive,
    )


# ---- for the store


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTest:
    """A test that will run, as far as a plan needs to know it."""

    node_id: str
    model: Model | None = None
    """That it runs with; None: it asks for none."""

    @property
    def case_id(self) -> str:
        return self.node_id if self.model is None else without_model(self.node_id, self.model.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFrame:
    """What a plan has beside its trials."""

    name: str
    folder: str
    """The rootdir."""
    limits: Limits = field(default_factory=Limits)
    fail_under: float | None = None
    selection: Mapping[str, object] = field(default_factory=dict)


KeyOf = Callable[[PlannedTest, int], str]
"""The key of a test, the so-maniest of its node id."""


def known_test(item: pytest.Item, models: Mapping[str, Model]) -> PlannedTest:
    # A user's own fixture or parameter may have the name; its values are no models of ours.
    name = item.callspec.params[MODEL] if has_model(item) else None  # type: ignore[attr-defined]  # of a Function
    return PlannedTest(
        node_id=item.nodeid, model=models.get(name) if isinstance(name, str) else None
    )


def has_model(item: pytest.Item) -> bool:
    """Whether it was made for one of several models, or of what else is called so."""
    spec = getattr(item, "callspec", None)
    return spec is not None and MODEL in spec.params


def named_test(node_id: str, models: Mapping[str, Model]) -> PlannedTest:
    """By the text alone, as far as that tells: all that xdist's controller has."""
    bare = without_xdist_group(node_id)
    name = model_in(bare, models)
    return PlannedTest(node_id=bare, model=None if name is None else models[name])


def plan_of(tests: Iterable[PlannedTest], *, frame: PlanFrame, key_of: KeyOf) -> Plan:
    """All tests, in their order. Those with the same node id are repeats of one another."""
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
    """A hash of all that decides the result, as far as it is the test's own: its code and model.

    What it tests is not in it; of that the run's selection tells.
    """

    def key_of(test: PlannedTest, repeat: int) -> str:
        words = [test.node_id, repeat, sources.digest(test.node_id), _model_words(test.model)]
        text = json.dumps(words, sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()

    return key_of


def _model_words(model: Model | None) -> list[object]:
    """What decides its answers: never its account, key, limits, price or patience."""
    if model is None:
        return []
    return [model.provider, model.base_url, model.model, dict(model.options), model.scenario]
