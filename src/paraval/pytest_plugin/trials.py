"""Tests as trials of a plan: the case is the test, the variant the model that it runs with.

What is known of a test by others (its model, whether it must run alone) is told from outside. What
becomes of a plan is the engine's to do and `recording`'s to keep.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from paraval.pytest_plugin.groups import group_need, groups_of
from paraval.pytest_plugin.node_ids import MODEL, model_in, without_model, without_xdist_group
from paraval.pytest_plugin.sources import DIGEST_BYTES, Sources
from paraval.records import (
    Case,
    FunctionTarget,
    Limits,
    Model,
    Plan,
    Scalar,
    Trial,
    Variant,
    account_need,
    model_need,
)

NO_MODEL = "(no model)"
"""The variant of tests that ask for no model, in a run where others do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known of a test beside its node id."""

    node_id: str
    model: Model | None = None
    """That it runs with; None: it asks for none."""
    needs: tuple[str, ...] = ()
    """Limits that it takes, beside those of its model: groups, accounts, an event loop's lock."""
    exclusive: bool = False


KeyOf = Callable[[Facts, int], str]
"""The key of a test, the so-maniest of its node id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What a plan has beside its trials."""

    name: str
    folder: str
    """The rootdir."""
    limits: Limits = field(default_factory=Limits)
    fail_under: float | None = None
    selection: Mapping[str, object] = field(default_factory=dict)


# ---- what is known of a test


def facts_of(item: pytest.Item, models: Mapping[str, Model]) -> Facts:
    """By the item itself; who must run alone, and what else it needs, others know."""
    return Facts(
        node_id=item.nodeid,
        model=_model_of(item, models),
        needs=tuple(group_need(group.name) for group in groups_of(item)),
    )


def facts_by_id(node_id: str, models: Mapping[str, Model]) -> Facts:
    """By the text alone, as far as that tells."""
    bare = without_xdist_group(node_id)
    name = model_in(bare, models)
    return Facts(node_id=bare, model=None if name is None else models[name])


def _model_of(item: pytest.Item, models: Mapping[str, Model]) -> Model | None:
    spec = getattr(item, "callspec", None)
    if spec is None or MODEL not in spec.params:
        return None
    # A user's own fixture or parameter may have the name; its values are no models of ours.
    name = model_in(item.nodeid, models)
    return None if name is None else models[name]


# ---- trials


def trial_of(facts: Facts, index: int, *, frame: Frame, key: str, repeat: int = 1) -> Trial:
    """One test as a trial. Without a store, its node id does as its key."""
    case_id, variant, needs = facts.node_id, _NO_VARIANT, facts.needs
    if facts.model is not None:
        case_id = without_model(case_id, facts.model.name)
        variant = {MODEL: facts.model.name}
        needs = (*needs, account_need(facts.model.account), model_need(facts.model.name))
    return Trial(
        index=index,
        key=key,
        case=Case(id=case_id),
        variant=variant,
        repeat=repeat,
        target=FunctionTarget(reference=facts.node_id, folder=frame.folder),
        needs=tuple(sorted(set(needs))),
        exclusive=facts.exclusive,
    )


def plan_of(tests: Iterable[Facts], *, frame: Frame, key_of: KeyOf) -> Plan:
    """All tests, in their order. Those with the same node id are repeats of one another."""
    tests = tuple(tests)
    seen: Counter[str] = Counter()
    models = _models_of(tests)
    trials = []
    for index, facts in enumerate(tests):
        seen[facts.node_id] += 1
        repeat = seen[facts.node_id]
        key = key_of(facts, repeat)
        trial = trial_of(facts, index, frame=frame, key=key, repeat=repeat)
        trials.append(_beside_models(trial) if models and facts.model is None else trial)
    return Plan(
        name=frame.name,
        source=None,
        axes=_axes(trials),
        variants=tuple({repr(trial.variant): trial.variant for trial in trials}.values()),
        trials=tuple(trials),
        limits=frame.limits,
        fail_under=frame.fail_under,
        selection=frame.selection,
    )


_NO_VARIANT: Variant = {}


def _beside_models(trial: Trial) -> Trial:
    """Its results stand in a row of their own, and are no model's."""
    return replace(trial, variant={MODEL: NO_MODEL})


def _models_of(tests: Sequence[Facts]) -> Collection[str]:
    return {facts.model.name for facts in tests if facts.model is not None}


def _axes(trials: Sequence[Trial]) -> dict[str, tuple[Scalar, ...]]:
    values = {trial.variant[MODEL]: None for trial in trials if MODEL in trial.variant}
    return {MODEL: tuple(values)} if values else {}


# ---- keys


def plain_key(facts: Facts, repeat: int) -> str:
    """For a run that nobody records."""
    return facts.node_id if repeat == 1 else f"{facts.node_id} #{repeat}"


def key_by_code(sources: Sources) -> KeyOf:
    """A hash of all that decides the result, as far as it is the test's own: its code and model."""

    def key_of(facts: Facts, repeat: int) -> str:
        words = [facts.node_id, repeat, sources.digest(facts.node_id), _model_words(facts.model)]
        text = json.dumps(words, sort_keys=True, default=str)
        return hashlib.blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()

    return key_of


def _model_words(model: Model | None) -> list[object]:
    """What decides its answers: never its account, key, limits, price or patience."""
    if model is None:
        return []
    return [model.provider, model.base_url, model.model, dict(model.options), model.scenario]
