"""The timeline: no slot holds two attempts at once, pauses are cut out, and any number fits."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings, strategies as st
from lxml import etree

from paraval.records import Outcome
from paraval.report.page.charts.data import Span
from paraval.report.page.charts.timeline import (
    in_order,
    last_busy,
    share_in_use,
    slots_of,
    timeline,
    without_pauses,
)

DAY_S = 86_400.0


def span(
    start: float, end: float, outcome: Outcome | None = Outcome.PASSED, *, final: bool = True
) -> Span:
    return Span(
        start_s=start, end_s=end, outcome=outcome, label="a trial", anchor="case-1", final=final
    )


times = st.floats(0, 1000, allow_nan=False)
some_spans = st.lists(
    st.tuples(times, times).map(lambda both: span(min(both), max(both))), min_size=1
)


@settings(max_examples=60, deadline=None)
@given(some_spans)
def test_no_slot_holds_two_attempts_at_once_and_no_more_are_used_than_were_at_once(
    spans: list[Span],
) -> None:
    ordered = in_order(spans)
    slots = slots_of(ordered)
    held: dict[int, list[Span]] = defaultdict(list)
    for one, slot in zip(ordered, slots, strict=True):
        held[slot].append(one)
    for mine in held.values():
        assert all(after.start_s >= before.end_s - 1e-5 for before, after in pairwise(mine))
    at_once = max(
        sum(other.start_s <= one.start_s and one.start_s <= other.end_s for other in ordered)
        for one in ordered
    )
    assert max(slots) < at_once


@settings(max_examples=60, deadline=None)
@given(some_spans)
def test_times_without_pauses_never_run_backwards_and_lose_nothing_else(spans: list[Span]) -> None:
    worked, pauses = without_pauses(in_order(spans))
    assert worked[0].start_s == 0
    assert all(after.start_s >= before.start_s - 1e-9 for before, after in pairwise(worked))
    whole = max(one.end_s for one in spans) - min(one.start_s for one in spans)
    left_out = sum(pause.length_s for pause in pauses)
    assert max(one.end_s for one in worked) == pytest.approx(whole - left_out)
    in_use = share_in_use(worked, max(slots_of(worked)) + 1, 50)
    assert all(-1e-9 <= used <= 1 for used in in_use)


def test_a_pause_of_a_day_is_cut_out_and_told() -> None:
    spans = [span(0, 60), span(DAY_S, DAY_S + 60)]
    worked, _ = without_pauses(spans)
    assert [(one.start_s, one.end_s) for one in worked] == [(0, 60), (60, 120)]
    drawn = timeline(spans, 1)
    assert "A pause of 23 h 59 min is cut out at the dashed line." in drawn
    assert drawn.count('class="cut"') == 1


def test_short_gaps_stay_since_idle_slots_are_what_a_reader_looks_for() -> None:
    assert without_pauses([span(0, 60), span(63, 120)])[1] == []


def test_the_share_in_use_is_over_all_slots_that_might_have_worked() -> None:
    spans = [span(0, 100), span(0, 50)]
    assert share_in_use(spans, 4, 4) == pytest.approx([0.5, 0.5, 0.25, 0.25])


@settings(max_examples=60, deadline=None)
@given(some_spans, st.integers(0, 4))
def test_after_the_last_busy_moment_no_more_than_that_are_at_work(
    spans: list[Span], most: int
) -> None:
    """Looked at in the middle between any two moments at which something changes."""
    moments = sorted({moment for one in spans for moment in (one.start_s, one.end_s)})
    busy = [
        after
        for before, after in pairwise(moments)
        if sum(one.start_s <= before and after <= one.end_s for one in spans) > most
    ]
    longer = [one for one in spans if one.end_s > one.start_s]
    assert last_busy(longer, most) == (busy[-1] if busy else None)


def test_the_end_with_idle_slots_is_told_in_full_when_one_followed_another_in_it() -> None:
    spans = [*(span(0, 4) for _ in range(4)), *(span(4 + step, 5 + step) for step in range(6))]
    assert "For the last 6.0 s no more than 2 slots of 4 had work" in timeline(spans, 4)


@pytest.mark.parametrize(
    ("slots", "told"),
    [
        (1, "One slot: one attempt at a time."),
        (4, "Each line is a slot: up to 4 in parallel, 25% of their time in use."),
        (
            400,
            "Up to 400 in parallel, 0% of their time in use; too many attempts or slots to draw",
        ),
    ],
)
def test_a_line_says_what_one_sees(slots: int, told: str) -> None:
    assert told in timeline([span(0, 10), span(10, 20)], slots)


def test_a_straggler_is_named() -> None:
    spans = [span(0, 10 + index / 10) for index in range(7)]
    late = Span(start_s=0.0, end_s=100.0, outcome=Outcome.PASSED, label="the slow one")
    drawn = timeline([*spans, late], 8)
    assert "For the last 1 min 30 s no more than 4 slots of 8 had work" in drawn
    assert "last to end: the slow one (1 min 40 s)" in drawn


def test_each_attempt_tells_its_name_its_end_and_how_long_it_took() -> None:
    drawn = timeline(
        [
            span(0, 2, Outcome.RATE_LIMITED, final=False),
            span(2, 8.2, Outcome.FAILED),
            span(9, 10, None),
        ]
    )
    titles = [one.text for one in etree.fromstring(drawn.encode()).iter("title")]
    assert titles[1:4] == [
        "a trial: rate limited, retried, 2.0 s",
        "a trial: failed, 6.2 s",
        "a trial: not ended, 1.0 s",
    ]
    assert 'x1="0%" x2="19.9%"' in drawn


@pytest.mark.parametrize(
    ("attempts", "slots"), [(1_500, 8), (1_501, 150), (60_000, 50), (20_000, 190)]
)
def test_any_number_of_attempts_fits_into_900_kilobytes(attempts: int, slots: int) -> None:
    dice = random.Random(attempts)
    outcomes = [Outcome.PASSED, Outcome.FAILED, Outcome.TIMEOUT]
    free = [0.0] * slots
    spans = []
    for index in range(attempts):
        start = free[index % slots]
        free[index % slots] = end = start + dice.uniform(0.5, 1.5)
        spans.append(
            Span(
                start_s=start,
                end_s=end,
                outcome=dice.choice(outcomes),
                label="<&\"'>" * 40,
                anchor=f"case-{index}",
            )
        )
    assert len(timeline(spans, slots).encode()) < 900_000


@pytest.mark.parametrize(("attempts", "slots"), [(300, 300), (1_501, 8)])
def test_of_very_many_only_the_share_in_use_is_drawn(attempts: int, slots: int) -> None:
    drawn = timeline([span(index, index + 1) for index in range(attempts)], slots)
    assert 'class="slots"' not in drawn
    assert 'class="use"' in drawn


def test_times_that_make_no_sense_are_left_out() -> None:
    assert timeline([span(5, 1), span(float("nan"), 2), span(0, float("inf"))]) == ""
    assert timeline([span(3, 3)]) != ""
