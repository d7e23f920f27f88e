"""What trials did, in words: the sections `Tools` and `Changes`, and what a reader must not miss.

Names are in words of others: whoever shows a section says how to show those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paraval.report.closing import Quote
from paraval.report.deeds import Changes, Deeds, ServerUse
from paraval.report.summary import Summary, VariantSummary
from paraval.report.table import label_of
from paraval.report.wording import counted, listed

_MOST_TAMPERING = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A heading, a line a variant, and alarms: what makes a comparison void, or a trial suspect."""

    heading: str
    lines: tuple[tuple[str, str], ...]
    """The variant's label, not quoted yet, and what it did."""
    alarms: tuple[str, ...]


def deed_sections(summary: Summary, quote: Quote) -> Iterator[Section]:
    """Those that say something about this run; none where no agent ran and nothing was changed."""
    agents = [one for one in summary.variants if one.deeds.agents]
    if agents:
        servers = summary.deeds.handed
        yield Section(
            heading="Tools",
            lines=tuple((label_of(one), _did(one.deeds, servers, quote)) for one in agents),
            alarms=tuple(alarm for one in agents for alarm in tool_alarms(one, summary, quote)),
        )
    changed = [(one, changes) for one in summary.variants if (changes := one.deeds.changes)]
    if changed:
        yield Section(
            heading="Changes",
            lines=tuple((label_of(one), _changed(changes)) for one, changes in changed),
            alarms=tuple(
                f"{quote(label_of(one))}: {_tampered(changes, quote)}"
                for one, changes in changed
                if changes.tampered
            ),
        )


def tool_alarms(one: VariantSummary, summary: Summary, quote: Quote) -> Iterator[str]:
    """Why a comparison by tools that this variant is part of may be void."""
    label, deeds = quote(label_of(one)), one.deeds
    for name, use in deeds.handed.items():
        server = quote(name)
        if use.is_never_called and use.errors:
            yield (
                f"{label} got nothing but errors from {server} ({counted(use.errors, 'call')}): "
                "a comparison with it says nothing about the tool"
            )
        elif use.is_never_called:
            yield (
                f"{label} never called {server}: a comparison with it says nothing about the tool"
            )
        if use.failed:
            trials = f"{use.failed:,} of {counted(use.handed, 'trial')}"
            yield f"{label} could not connect {server} in {trials}"
    for name, use in deeds.servers.items():
        if not use.handed and name in summary.deeds.handed and use.called:
            yield (
                f"{label} called {quote(name)} in {counted(use.called, 'trial')}, though it was "
                "not handed over: it is no comparison without the tool"
            )


def _did(deeds: Deeds, servers: dict[str, ServerUse], quote: Quote) -> str:
    parts = [f"{quote(name)}: {_used(use)}" for name, use in deeds.handed.items()]
    if servers and not parts:
        parts.append("no MCP server")
    return "; ".join([*parts, *_turns_and_calls(deeds, is_other=bool(deeds.handed))])


def _used(use: ServerUse) -> str:
    """`called in 28 of 30 trials (74 calls), connected in 30`."""
    if use.telling:
        called = f"called in {use.called:,} of {counted(use.telling, 'trial')}"
        errors = f", {use.errors:,} more with an error" if use.errors else ""
        calls = f" ({counted(use.calls, 'call')}{errors})" if use.calls or errors else ""
        words = called + calls
    else:
        words = "tool calls not reported"
    # Some agents tell a connection only by what was called over it: that is nothing new.
    is_told = use.connected + use.failed == use.handed
    return f"{words}, connected in {use.connected:,}" if is_told else words


def _turns_and_calls(deeds: Deeds, *, is_other: bool) -> Iterator[str]:
    told = []
    if deeds.median_turns is not None:
        told.append(_amount(deeds.median_turns, "turn"))
    if deeds.telling:
        what = "call of other tools" if is_other else "call of tools"
        many = "calls of other tools" if is_other else "calls of tools"
        told.append(f"{counted(deeds.other_calls, what, many)} in all")
    elif not is_other:
        told.append("tool calls not reported")
    if told:
        yield ("median " if deeds.median_turns is not None else "") + ", ".join(told)


def _changed(changes: Changes) -> str:
    """`28 of 30 trials changed files; median 2 files, 14 lines added, 3 deleted`."""
    trials = counted(changes.trials, "trial")
    unknown = f"unknown in {changes.unknown:,} of {trials}"
    known = (changes.median_files, changes.median_lines_added, changes.median_lines_deleted)
    if None in known:
        at_least = f"; at least {changes.changed:,} changed files" if changes.changed else ""
        return unknown + at_least
    told = [f"{changes.changed:,} of {trials} changed files"]
    if changes.changed:
        files, added, deleted = (number or 0 for number in known)
        lines = f"{_amount(added, 'line')} added, {deleted:,.6g} deleted"
        told.append(f"median {_amount(files, 'file')}, {lines}")
    return "; ".join([*told, unknown] if changes.unknown else told)


def _amount(median: float, noun: str) -> str:
    """`1 line`, `2.5 lines`."""
    return f"{median:,.6g} {noun if median == 1 else noun + 's'}"


def _tampered(changes: Changes, quote: Quote) -> str:
    what = list(changes.tampering.items())
    told = [f"{quote(words)} ({number:,})" for words, number in what[:_MOST_TAMPERING]]
    if left := len(what) - _MOST_TAMPERING:
        told += [f"{left:,} more"] if left > 0 else []
    trials = counted(changes.tampered, "trial")
    return f"{trials} tampered with .git: {listed(told)}"
