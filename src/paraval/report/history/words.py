"""What stands beside a run's figures, in words: how it ended, what changed, what got better or
worse. Names are others': whoever shows the words says how to show those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from paraval.report.comparing.points import signed_points, signed_range
from paraval.report.history.records import Entry, History, Shift, Standing
from paraval.report.part import choice_text
from paraval.report.stopping import early_stops
from paraval.report.wording import counted, listed, percent, variant_label

Quote = Callable[[str], str]

PARTIAL_SIGN = "~"
"""Before a rate that is not over all that was planned."""
PARTIAL_LEGEND = (
    f"{PARTIAL_SIGN} partial: over the trials that had ended, which may be the easy ones."
)
_HOW = {
    Standing.RUNNING: "still running",
    Standing.HELD_BACK: "held back",
    Standing.INTERRUPTED: "interrupted",
}


def heading(history: History, quote: Quote) -> str:
    """`greetings (model=small): 5 runs`."""
    chosen = f" ({quote(choice_text(history.choice))})" if history.choice else ""
    return f"{quote(history.suite)}{chosen}: {counted(len(history.entries), 'run')}"


def notes(entry: Entry, quote: Quote) -> list[str]:
    return [*_ending(entry), *_extent(entry, quote), *_changes(entry), *_shifts(entry, quote)]


def left_out(history: History) -> list[str]:
    """What is not shown, in sentences."""
    sentences = []
    if history.older:
        have = "is" if history.older == 1 else "are"
        sentences.append(f"{counted(history.older, 'older run')} {have} left out: --limit N.")
    if history.unfitting:
        chosen = choice_text(history.choice)
        has = "has" if history.unfitting == 1 else "have"
        sentences.append(f"{counted(history.unfitting, 'run')} {has} no trial with {chosen}.")
    return sentences


def shift_words(shift: Shift, quote: Quote) -> str:
    """`small: worse than the run before (-12 points, 95 %: -20 to -4)`."""
    of = "" if shift.variant is None else f"{quote(variant_label(shift.variant))}: "
    better = "better" if shift.difference > 0 else "worse"
    since = "the run before" if shift.is_since_last else f"run {shift.since}"
    sure = f"{percent(shift.confidence)}{' at any time' if shift.at_any_time else ''}"
    told = f"{signed_points(shift.difference)}, {sure}: {signed_range(shift.interval)}"
    return f"{of}{better} than {since} ({told}, {counted(shift.cases, 'case')})"


def _ending(entry: Entry) -> Iterator[str]:
    run, summary = entry.run, entry.summary
    if entry.is_partial:
        yield f"{_HOW[entry.standing]}, {run.done:,} of {counted(run.trials, 'trial')}: partial"
    if not entry.has_verdicts:
        kinds = listed(f"{number:,} {kind}" for kind, number in summary.errors_by_kind.items())
        yield f"nothing was judged{f': {kinds}' if kinds else ''}"
    early = early_stops(summary)
    if early:
        yield f"stopped early: {counted(early, 'trial')} not run"


def _extent(entry: Entry, quote: Quote) -> Iterator[str]:
    suite_cases = entry.suite_cases
    if suite_cases is not None and entry.cases < suite_cases:
        yield f"{entry.cases:,} of {counted(suite_cases, 'case')}"
    if entry.chosen_variants:
        number, whole = len(entry.summary.variants), entry.suite_variants
        # Models that the matrix does not list can be chosen too: then it is no share of the suite.
        is_share = whole is not None and number < whole
        extent = f"{number:,} of {whole:,} variants" if is_share else "chosen variants alone"
        yield f"{extent} ({quote(entry.chosen_variants)})"


def _changes(entry: Entry) -> Iterator[str]:
    if entry.changes:
        yield "; ".join(change.words for change in entry.changes)


def _shifts(entry: Entry, quote: Quote) -> Iterator[str]:
    return (shift_words(shift, quote) for shift in entry.shifts)
