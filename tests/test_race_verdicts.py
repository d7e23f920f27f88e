"""What measurements show: each status with its reason, and no winner by luck."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from paraval.racing.findings import Block, Speedup
from paraval.racing.request import TOTAL, AcceptSpec, BenchSpec
from paraval.racing.standings import Status
from paraval.racing.verdicts import (
    IN_TIME,
    LEAST_FINAL_BLOCKS,
    LEAST_FINALISTS,
    CandidateCounts,
    MeasuredSpeed,
    RaceVerdict,
    cases_of,
    extent,
    final_blocks,
    final_confidence,
    log_ratio_of,
    most_finalists,
    one_of,
    speedup_of,
    verdicts_on,
)

ACCEPT = AcceptSpec.model_validate({"speedup": 1.05, "confidence": 0.95})
WIGGLE = (0.99, 1.01, 1.0, 1.005, 0.995, 1.0)


def blocks(speed: float, *, wiggle: tuple[float, ...] = WIGGLE) -> tuple[Block, ...]:
    return tuple(block(speed * more) for more in wiggle)


def block(speed: float, **cases: float) -> Block:
    """`cases`: the speed of each, where it is another."""
    baseline = {TOTAL: 1.0, **dict.fromkeys(cases, 0.5)}
    candidate = {TOTAL: 1 / speed, **{case: 0.5 / fast for case, fast in cases.items()}}
    return Block(baseline=(baseline, baseline), candidate=(candidate, candidate))


def finalist(name: str, speed: float, held: str = "") -> MeasuredSpeed:
    return MeasuredSpeed(name=name, screening=blocks(9.0), final=blocks(speed), held=held)


def judged(*measured: MeasuredSpeed) -> dict[str, RaceVerdict]:
    return among(sum(bool(one.screening) for one in measured), *measured)


def among(screened: int, *measured: MeasuredSpeed) -> dict[str, RaceVerdict]:
    finalists = sum(bool(one.final) for one in measured)
    return verdicts_on(measured, ACCEPT, CandidateCounts(screened=screened, finalists=finalists))


def test_the_fastest_finalist_that_shows_enough_wins_and_the_other_is_accepted() -> None:
    verdicts = judged(finalist("second", 1.3), finalist("first", 1.5))
    assert verdicts["first"].status is Status.WON
    assert verdicts["first"].reason == "49 to 51% faster (6 fresh blocks)"
    assert verdicts["second"].status is Status.ACCEPTED
    assert verdicts["second"].reason == "29 to 31% faster; first is faster"


def test_luck_before_the_finals_counts_for_nothing() -> None:
    verdict = judged(finalist("lucky", 1.0))["lucky"]
    assert verdict.status is Status.NOT_SHOWN
    assert verdict.reason.startswith("within noise: ")
    assert verdict.speedup is not None
    assert verdict.speedup.estimate == pytest.approx(1.0, abs=0.01)


def test_the_interval_of_one_of_two_finalists_is_wider_than_that_of_a_single_one() -> None:
    alone = judged(finalist("a", 1.5))["a"].speedup
    one_of_two = judged(finalist("a", 1.5), finalist("b", 1.1))["a"].speedup
    assert alone is not None
    assert one_of_two is not None
    assert one_of_two.low < alone.low < alone.high < one_of_two.high


def test_finalists_that_are_not_distinguishable_are_reported_as_such() -> None:
    wiggle = (1.01, 0.99, 1.0, 0.995, 1.005, 1.001)
    near = MeasuredSpeed(name="near", final=blocks(1.5, wiggle=wiggle))
    verdicts = judged(finalist("ahead", 1.502), near)
    assert verdicts["ahead"].status is Status.WON
    assert verdicts["ahead"].reason.endswith("; not distinguishable from near")
    assert verdicts["near"].status is Status.ACCEPTED
    assert verdicts["near"].reason.endswith("; not distinguishable from ahead")


def test_one_that_was_only_screened_is_accepted_beside_a_winner() -> None:
    screened = MeasuredSpeed(name="third", screening=blocks(1.4))
    verdicts = judged(finalist("won", 2.0), screened)
    assert verdicts["third"].status is Status.ACCEPTED
    assert verdicts["third"].reason == "39 to 41% faster in screening; won was ahead"


def test_one_of_many_screened_candidates_must_show_more_to_be_accepted() -> None:
    """Three blocks that show enough by themselves do not show it of the luckiest of fifty."""
    screened = MeasuredSpeed(name="third", screening=blocks(1.2, wiggle=WIGGLE[:3]))
    assert among(2, finalist("won", 2.0), screened)["third"].status is Status.ACCEPTED
    verdict = among(50, finalist("won", 2.0), screened)["third"]
    assert verdict.status is Status.NOT_SHOWN
    assert verdict.reason.startswith("within noise: ")
    assert verdict.speedup is not None
    assert verdict.speedup.low < 1.05, "the interval that is shown is the one that decides"


def test_one_with_a_caution_loses_to_one_without_unless_it_is_clearly_faster() -> None:
    wiggle = (1.01, 0.99, 1.0, 0.995, 1.005, 1.001)
    near = MeasuredSpeed(name="near", final=blocks(1.5, wiggle=wiggle))
    suspect = replace(finalist("suspect", 1.502), has_cautions=True)
    verdicts = judged(suspect, near)
    assert verdicts["near"].status is Status.WON
    assert verdicts["suspect"].status is Status.ACCEPTED
    assert verdicts["suspect"].reason.endswith(
        "; not distinguishable from near, which has no caution"
    )
    clearly = replace(finalist("suspect", 1.9), has_cautions=True)
    assert judged(clearly, near)["suspect"].status is Status.WON


def test_a_case_that_became_slower_keeps_a_candidate_from_winning_if_that_is_required() -> None:
    """96 times as fast in one case, and slower in the other: the total hides it."""
    both = tuple(block(1.9, memo=96.0, other=0.9) for _ in range(6))
    measured = MeasuredSpeed(name="memo", screening=both, final=both)
    among_one = CandidateCounts(screened=1, finalists=1)
    assert verdicts_on([measured], ACCEPT, among_one)["memo"].status is Status.WON
    verdict = verdicts_on([measured], ACCEPT.model_copy(update={"each": 0.95}), among_one)["memo"]
    assert verdict.status is Status.NOT_SHOWN
    assert verdict.reason == "case 'other' is 0.90 times as fast, required 0.95"


def test_one_that_was_only_screened_is_not_shown_without_a_winner() -> None:
    screened = MeasuredSpeed(name="third", screening=blocks(1.4))
    verdict = judged(finalist("lucky", 1.0), screened)["third"]
    assert verdict.status is Status.NOT_SHOWN
    assert verdict.reason == "39 to 41% faster in screening, not confirmed by finals"


@pytest.mark.parametrize(
    ("speed", "status", "reason"),
    [
        (0.5, Status.SLOWER, "50% slower"),
        (1.025, Status.NOT_SHOWN, "1.7 to 3.3% faster, less than the required 5%"),
        (
            1.05,
            Status.NOT_SHOWN,
            "4.2 to 5.8% faster; not shown to exceed the required 5%",
        ),
        (1.0, Status.NOT_SHOWN, "within noise: 0.7% slower to 0.7% faster"),
        (3.0, Status.WON, "2.98–3.02× as fast (6 fresh blocks)"),
    ],
)
def test_each_status_has_its_reason(speed: float, status: Status, reason: str) -> None:
    verdict = judged(finalist("one", speed))["one"]
    assert (verdict.status, verdict.reason) == (status, reason)


def test_one_that_is_held_does_not_win_however_fast_it_is() -> None:
    verdicts = judged(finalist("cheat", 9.0, held="it keeps its answers"), finalist("fair", 1.5))
    assert verdicts["cheat"].status is Status.NOT_SHOWN
    assert verdicts["cheat"].reason == "it keeps its answers"
    assert verdicts["fair"].status is Status.WON


def test_one_block_shows_nothing() -> None:
    verdict = judged(MeasuredSpeed(name="one", final=(block(5.0),)))["one"]
    assert verdict.status is Status.NOT_SHOWN
    assert verdict.reason == "a single block is not enough"
    assert (
        extent(Speedup(estimate=5, low=0, high=math.inf), IN_TIME) == "unknown from a single block"
    )


def test_a_candidate_without_measurements_has_no_speedup() -> None:
    verdict = judged(MeasuredSpeed(name="one"))["one"]
    assert (verdict.status, verdict.speedup) == (Status.NOT_SHOWN, None)
    assert speedup_of((), 0.95) is None
    assert cases_of((), 0.95) == {}


def test_cases_have_intervals_of_their_own() -> None:
    measured = MeasuredSpeed(
        name="one", final=tuple(block(1.5, quick=3.0, slow=0.5) for _ in range(5))
    )
    cases = judged(measured)["one"].cases
    assert {name: round(one.estimate, 3) for name, one in cases.items()} == {
        "quick": 3.0,
        "slow": 0.5,
    }


def test_a_case_that_not_every_process_reports_is_left_out() -> None:
    reported = (block(1.5, quick=3.0, slow=2.0), block(1.5, slow=2.0))
    assert set(cases_of(reported, 0.95)) == {"slow"}


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan])
def test_a_block_without_a_time_is_refused(wrong: float) -> None:
    sample = {TOTAL: wrong}
    with pytest.raises(ValueError, match="seconds above 0"):
        log_ratio_of(Block(baseline=({TOTAL: 1.0}, {TOTAL: 1.0}), candidate=(sample, sample)))
    with pytest.raises(ValueError, match="no measurement of 'other'"):
        log_ratio_of(block(1.0), "other")


# ---- how often candidates are measured


def bench(blocks: int | None = None) -> BenchSpec:
    return BenchSpec.model_validate({"command": ["bench"], "blocks": blocks})


@pytest.mark.parametrize(
    ("process_s", "finalists", "blocks"),
    [(0.0, 1, 15), (1.0, 1, 15), (1.5, 1, 10), (60, 1, 5), (0.5, 3, 10), (0.5, 30, 5)],
)
def test_the_finals_together_take_about_a_minute(
    process_s: float, finalists: int, blocks: int
) -> None:
    assert final_blocks(bench(), process_s, finalists) == blocks
    assert final_blocks(bench(7), process_s, finalists) == 7


@pytest.mark.parametrize("process_s", [0.001, 0.1, 1.0, 10.0, 600.0])
def test_there_are_as_many_finalists_as_fit_in_five_minutes_and_at_least_two(
    process_s: float,
) -> None:
    most = most_finalists(bench(), process_s)
    took_s = LEAST_FINAL_BLOCKS * 4 * process_s
    assert most == LEAST_FINALISTS or most * took_s <= 300 < (most + 1) * took_s


def test_each_of_several_finalists_must_show_more_than_a_single_one() -> None:
    assert final_confidence(0.95, 1) == pytest.approx(0.95)
    assert final_confidence(0.95, 2) == pytest.approx(0.975)
    assert one_of(50, 0.95) == pytest.approx(0.999)
