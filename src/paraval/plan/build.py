"""From a suite to a plan: which trials run, in which order, each with its key."""

from __future__ import annotations

import fnmatch
import hashlib
import itertools
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from paraval.errors import Problem, RequestError, SuiteError
from paraval.plan.fitting import find_shared_file
from paraval.plan.matrix import Axis
from paraval.plan.places import listed, nearest, suggestion
from paraval.plan.scalars import scalar_text
from paraval.plan.suite import TRIAL_LIMIT, Definition, Suite, limit_name
from paraval.records import (
    Case,
    CommandTarget,
    Grading,
    Limits,
    Plan,
    Scalar,
    Target,
    Trial,
    Variant,
)
from paraval.settings import Selection

VariantTargets = Sequence[tuple[Variant, Target]]


def build_plan(suite: Suite, selection: Selection) -> Plan:
    """The suite's trials that a selection asks for: by case, then variant, then repeat."""
    definition = suite.definition
    _check_overrides(selection)
    cases = _select_cases(definition.cases, selection)
    variants = _with_timeout(_select_variants(definition, selection), selection.timeout)
    repeats = definition.repeats if selection.repeats is None else selection.repeats
    _check_size(definition, cases, variants, repeats)
    limits = _limits(definition.limits, selection.parallel)
    fail_under = definition.fail_under if selection.fail_under is None else selection.fail_under
    return Plan(
        name=definition.name,
        source=definition.source,
        axes=_remaining_axes(definition.axes, variants),
        variants=tuple(variant for variant, _ in variants),
        trials=_trials(definition, cases, variants, repeats),
        grading=definition.grading,
        limits=limits,
        retry=definition.retry,
        fail_under=fail_under,
        selection=selection.as_mapping(),
    )


def _check_overrides(selection: Selection) -> None:
    if selection.repeats is not None and selection.repeats < 1:
        raise RequestError(f"repeats must be 1 or more, not {selection.repeats}")
    timeout = selection.timeout
    if timeout is not None and not (timeout > 0 and math.isfinite(timeout)):
        raise RequestError(f"the timeout must be a number of seconds greater than 0, not {timeout}")
    share = selection.fail_under
    if share is not None and not 0 <= share <= 1:
        raise RequestError(f"fail-under must be a number from 0 to 1, not {share}")


def _limits(limits: Limits, parallel: int | None) -> Limits:
    return limits if parallel is None else replace(limits, parallel=max(1, parallel))


# ---- what is selected


def _select_cases(cases: tuple[Case, ...], selection: Selection) -> tuple[Case, ...]:
    by_id = _matching_ids(cases, selection.cases)
    tags = _known_tags(cases, selection.tags)
    chosen = tuple(
        case
        for case in cases
        if (by_id is None or case.id in by_id) and (not tags or not tags.isdisjoint(case.tags))
    )
    if not chosen:
        raise RequestError(
            f"no case fits both {listed(selection.cases)} and the tags {listed(selection.tags)}"
        )
    return chosen


def _matching_ids(cases: tuple[Case, ...], globs: tuple[str, ...]) -> set[str] | None:
    if not globs:
        return None
    ids = [case.id for case in cases]
    chosen: set[str] = set()
    for pattern in globs:
        found = [name for name in ids if fnmatch.fnmatchcase(name, pattern)]
        if not found:
            near = nearest(pattern.strip("*"), ids)
            hint = f"near ones: {', '.join(near)}" if near else f"there is {listed(ids)}"
            raise RequestError(f"no case matches '{pattern}'", hint=hint)
        chosen.update(found)
    return chosen


def _known_tags(cases: tuple[Case, ...], tags: tuple[str, ...]) -> set[str]:
    known = {tag: None for case in cases for tag in case.tags} if tags else {}
    for tag in tags:
        if tag not in known:
            what_there_is = suggestion(tag, known) or "; the cases have no tags"
            raise RequestError(f"no case has the tag '{tag}'{what_there_is}")
    return set(tags)


def _select_variants(definition: Definition, selection: Selection) -> VariantTargets:
    wanted = _wanted_values(definition.axes, selection.variants)
    chosen = [
        (variant, target)
        for variant, target in definition.variants
        if all(scalar_text(variant[axis]) in texts for axis, texts in wanted.items())
    ]
    if not chosen:
        asked = listed(f"{axis}={value}" for axis, value in selection.variants)
        raise RequestError(f"no variant fits {asked}", hint="the suite excludes such variants")
    return chosen


def _wanted_values(
    axes: tuple[Axis, ...], pairs: tuple[tuple[str, str], ...]
) -> dict[str, list[str]]:
    """The values asked for, as text: in Python, True is 1 and 1 is 1.0."""
    by_name = {axis.name: axis for axis in axes}
    wanted: dict[str, list[str]] = {}
    for name, text in pairs:
        if name not in by_name:
            what_there_is = suggestion(name, by_name) or "; the suite has no matrix"
            raise RequestError(f"there is no axis '{name}'{what_there_is}")
        value = by_name[name].find(text)
        if value is None:
            what_there_is = suggestion(text, by_name[name].texts())
            raise RequestError(f"axis '{name}' has no value '{text}'{what_there_is}")
        wanted.setdefault(name, []).append(value.text)
    return wanted


def _remaining_axes(
    axes: tuple[Axis, ...], variants: VariantTargets
) -> dict[str, tuple[Scalar, ...]]:
    present = {
        axis.name: {scalar_text(variant[axis.name]) for variant, _ in variants} for axis in axes
    }
    return {
        axis.name: tuple(v.value for v in axis.values if v.text in present[axis.name])
        for axis in axes
    }


def _with_timeout(variants: VariantTargets, timeout: float | None) -> VariantTargets:
    if timeout is None:
        return variants
    made = {id(target): replace(target, timeout=float(timeout)) for _, target in variants}
    return [(variant, made[id(target)]) for variant, target in variants]


def _check_size(
    definition: Definition, cases: Sequence[Case], variants: VariantTargets, repeats: int
) -> None:
    count = len(cases) * len(variants) * repeats
    if count > TRIAL_LIMIT:
        raise RequestError(f"this makes {count:,} trials; at most {TRIAL_LIMIT:,} can run")
    if repeats == definition.repeats:
        return
    shared = find_shared_file(variants, cases, repeats)
    if shared is not None:
        problem = Problem(message=shared.message, file=definition.source, key="target.output")
        raise SuiteError([problem])


# ---- trials and their keys


@dataclass(frozen=True, slots=True, kw_only=True)
class _VariantPart:
    """What the trials of a variant share."""

    variant: Variant
    target: Target
    needs: tuple[str, ...]
    digest: bytes


def _trials(
    definition: Definition, cases: Sequence[Case], variants: VariantTargets, repeats: int
) -> tuple[Trial, ...]:
    grading = _digest(_grading_words(definition.grading))
    parts = [_variant_part(definition, variant, target) for variant, target in variants]
    endings = [(repeat, grading + repeat.to_bytes(8)) for repeat in range(1, repeats + 1)]
    index = itertools.count()
    trials: list[Trial] = []
    for case in cases:
        words = _case_words(case)
        for part in parts:
            start = part.digest + words
            for repeat, ending in endings:
                key = hashlib.blake2b(start + ending, digest_size=16).hexdigest()
                trials.append(
                    Trial(
                        index=next(index),
                        key=key,
                        case=case,
                        variant=part.variant,
                        repeat=repeat,
                        target=part.target,
                        needs=part.needs,
                    )
                )
    return tuple(trials)


def _case_words(case: Case) -> bytes:
    """What a case adds to the keys of its trials: itself if that is short, else a digest."""
    if type(case.input) is str and type(case.expect) is str and not case.metadata:
        # There may be very many, and texts alone need no encoder to be told apart.
        words = repr((case.id, case.input, case.expect)).encode()
        return words if len(words) < 200 else hashlib.blake2b(words, digest_size=16).digest()
    return _digest([case.id, case.input, case.expect, case.metadata])


def _variant_part(definition: Definition, variant: Variant, target: Target) -> _VariantPart:
    names = (limit_name(axis, value) for axis, value in variant.items())
    return _VariantPart(
        variant=variant,
        target=target,
        needs=tuple(sorted(name for name in names if name in definition.limits.named)),
        digest=_digest([dict(variant), _target_words(target, definition.folder)]),
    )


def _target_words(target: Target, folder: str) -> dict[str, Any]:
    """What decides a target's answers. Not how long it may take, nor where the suite's folder is:
    a moved checkout keeps its keys."""
    words = asdict(target)
    for name in ("timeout", "grace", "folder", "any_exit_code"):
        words.pop(name, None)
    if isinstance(target, CommandTarget):
        words["cwd"] = os.path.relpath(target.cwd, folder)
    return {"kind": type(target).__name__, **words}


def _grading_words(grading: Grading) -> list[Any]:
    graders = [(spec.name, spec.kind, spec.options, spec.weight) for spec in grading.graders]
    return [graders, grading.pass_at]


def _mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_mapping)


def _digest(words: Any) -> bytes:
    return hashlib.blake2b(_canonical.encode(words).encode(), digest_size=16).digest()
