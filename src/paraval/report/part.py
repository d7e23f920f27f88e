"""A part of a run: the trials whose variants have the chosen values; and with which axes they are
told, so that the parts of two runs can lie side by side.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from paraval.errors import RequestError
from paraval.records import AttemptRecord, RunInfo, TrialResult, Variant, value_text
from paraval.report.compare.variants import axes_of
from paraval.report.contents import RunSource
from paraval.text.suggest import nearest
from paraval.text.terminal import one_line
from paraval.text.words import listed

Choice = Mapping[str, str]
"""Axis -> value, in the suite's own words."""
_MOST_NAMED = 8
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A source of those trials alone that a choice fits."""

    source: RunSource
    choice: Choice
    axes: Sequence[str]
    """What is told of their variants."""

    def info(self) -> RunInfo:
        """The run's; how many trials were planned for the part, nobody has counted."""
        info = self.source.info()
        return replace(info, trials=0) if self.choice else info

    def results(self) -> Iterator[TrialResult]:
        for result in self.source.results():
            if self._fits(result.variant):
                told = self._told(result.variant)
                # To copy each of 100,000 takes seconds.
                is_same = len(told) == len(result.variant)
                yield result if is_same else replace(result, variant=told)

    def attempts(self) -> Iterator[AttemptRecord]:
        for attempt in self.source.attempts():
            if self._fits(attempt.variant):
                yield replace(attempt, variant=self._told(attempt.variant))

    def _fits(self, variant: Variant) -> bool:
        return all(
            axis in variant and value_text(variant[axis]) == value
            for axis, value in self.choice.items()
        )

    def _told(self, variant: Variant) -> Variant:
        return {axis: variant[axis] for axis in self.axes if axis in variant}


def axes_in(source: RunSource) -> tuple[str, ...]:
    """The names alone, which every variant of a run has; none where there is no trial."""
    first = next(iter(source.results()), None)
    return () if first is None else tuple(first.variant)


def side_by_side(
    one: tuple[RunSource, Choice], other: tuple[RunSource, Choice]
) -> tuple[Part, Part]:
    """Two parts, told with the axes that can be the same.

    What is chosen on both sides, as `model=a` against `model=b`, tells nothing of what else they
    have in common; nor does what was chosen of an axis that the other side doesn't have.
    """
    axes, other_axes = axes_in(one[0]), axes_in(other[0])
    order = dict.fromkeys((*axes, *other_axes))
    return (
        Part(source=one[0], choice=one[1], axes=_kept(order, one[1], other[1], other_axes)),
        Part(source=other[0], choice=other[1], axes=_kept(order, other[1], one[1], axes)),
    )


def _kept(
    order: Iterable[str], own: Choice, others: Choice, other_axes: Sequence[str]
) -> list[str]:
    return [
        axis for axis in order if axis not in own or (axis in other_axes and axis not in others)
    ]


# ---- in words


def choice_from(text: str, source: RunSource, name: str) -> Choice:
    """From `AXIS=VALUE,AXIS=VALUE`; values may hold commas and equals signs. `name`: the run's."""
    axes = axes_in(source)
    known = "|".join(re.escape(axis) for axis in sorted(axes, key=len, reverse=True))
    choice: dict[str, str] = {}
    for item in re.split(f",(?=(?:{known})=)", text) if axes else [text]:
        found = re.match(f"({known})=(.*)", item, re.DOTALL) if axes else None
        if found is None:
            raise _no_such_axis(item, axes, name)
        axis, value = found.groups()
        if axis in choice:
            raise RequestError(f"{text}: the axis '{axis}' is there twice", hint=_ONE_VALUE)
        choice[axis] = value
    return choice


def require_trials(part: Part, name: str) -> None:
    """RequestError, with the values that there are, where no trial fits."""
    if not part.choice or next(part.results(), None) is not None:
        return
    axes = axes_of(result.variant for result in part.source.results())
    for axis, value in part.choice.items():
        values = [value_text(one) for one in axes.get(axis, ())]
        if value not in values:
            near = nearest(value, values)
            hint = f"did you mean {axis}={_shown(near[0])}?" if near else f"it has {_some(values)}"
            raise RequestError(f"the axis '{axis}' of {name} has no value '{value}'", hint=hint)
    raise RequestError(f"{name} has no trial with {choice_text(part.choice)}")


def choice_text(choice: Choice) -> str:
    """`model=small,mode=fast`."""
    return ",".join(f"{axis}={value}" for axis, value in choice.items())


_ONE_VALUE = "a side has one value of an axis"


def _no_such_axis(item: str, axes: Sequence[str], name: str) -> RequestError:
    if not axes:
        return RequestError(f"{item}: {name} has no axes to choose from")
    axis, equals, _ = item.partition("=")
    if not (axis and equals):
        message = f"'{item}' chooses no part of {name}: write AXIS=VALUE"
        return RequestError(message, hint=f"its axes are {_some(axes)}")
    near = nearest(axis, axes)
    hint = f"did you mean {_shown(near[0])}?" if near else f"its axes are {_some(axes)}"
    return RequestError(f"{name} has no axis '{axis}'", hint=hint)


def _some(names: Sequence[str]) -> str:
    shown = [_shown(name) for name in names[:_MOST_NAMED]]
    more = len(names) - len(shown)
    return listed([*shown, *([f"{more:,} more"] if more else [])])


def _shown(text: str) -> str:
    """Names may come out of anybody's file."""
    return one_line(text, _LONGEST_NAME)
