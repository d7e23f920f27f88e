"""What else differs between two sides, so that a difference may have other reasons than one looks
for: other suites, other parts, verdicts that are missing.

Names are in words of others: whoever shows the notices says how to show those.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from paraval.report.comparing.sentences import Quote
from paraval.report.versus.held import Held, Versus
from paraval.report.wording import counted, listed

_MOST_NAMED = 5


def notices_of(versus: Versus, quote: Quote) -> Iterator[str]:
    """Each a sentence."""
    subject, reference = versus.subject, versus.reference
    if subject.tells_run and reference.tells_run:
        yield from _other_suite(subject, reference, quote)
        yield from _other_parts(subject, reference, quote)
        if not versus.has_same_graders:
            yield "Scores are not compared: the two runs have different graders."
    for held in (reference, subject):
        yield from _unfinished(held, quote)
    yield from _unshared(versus, quote)
    if versus.is_any_time:
        yield from _early(versus, quote)


def _other_suite(subject: Held, reference: Held, quote: Quote) -> Iterator[str]:
    if subject.run.suite != reference.run.suite:
        names = f"{quote(reference.run.suite)} and {quote(subject.run.suite)}"
        yield f"They are of two suites, {names}: cases are paired by their ids alone."


def _other_parts(subject: Held, reference: Held, quote: Quote) -> Iterator[str]:
    now, before = subject.run.parts, reference.run.parts
    if not now or not before or subject.run.id == reference.run.id:
        return
    changed = [name for name in dict.fromkeys((*before, *now)) if now.get(name) != before.get(name)]
    if changed:
        yield f"What changed between the two runs: {_some(changed, quote)}."


def _unfinished(held: Held, quote: Quote) -> Iterator[str]:
    run, label = held.run, quote(held.label)
    if not held.summary.trials:
        yield f"{label} has no trials."
    elif run.running:
        yield f"{label} still goes on{_without_result(held)}: the figures will change."
    elif run.interrupted:
        yield f"{label} was interrupted{_without_result(held)}."
    elif run.held_back:
        yield f"{label} left trials for later{_without_result(held)}."


def _without_result(held: Held) -> str:
    """`, 3 trials without a result`: they count in no figure."""
    number = held.summary.skipped
    return f", {counted(number, 'trial')} without a result" if number else ""


def _unshared(versus: Versus, quote: Quote) -> Iterator[str]:
    for held, variants in (
        (versus.reference, versus.only_reference),
        (versus.subject, versus.only_subject),
    ):
        if variants:
            only = counted(len(variants), "variant")
            yield f"Only {quote(held.label)} has {only}, left out: {_some(variants, quote)}."


def _early(versus: Versus, quote: Quote) -> Iterator[str]:
    stopped = [one for one in (versus.reference, versus.subject) if one.is_stopped_early]
    names = listed(dict.fromkeys(quote(one.label) for one in stopped))
    may = "may stop" if any(one.run.running for one in stopped) else "could stop"
    if versus.comparison.stopped is None:
        yield (
            f"{names} {may} early, and the cases were not drawn in one known order: how the sides"
            " stand is told, but nothing is claimed."
        )
    else:
        yield f"{names} {may} early: what is claimed holds at any time, and no more is claimed."


def _some(names: Sequence[str], quote: Quote) -> str:
    more = len(names) - _MOST_NAMED
    return listed([*map(quote, names[:_MOST_NAMED]), *([f"{more:,} more"] if more > 0 else [])])
