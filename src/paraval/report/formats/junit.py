"""JUnit XML, in the form that Jenkins, GitLab, GitHub's reporters and Surefire's readers share.

One test suite per variant. A wrong answer is a `failure`; an error is an `error` with its kind as
the type. Readers count them separately, as we do.
"""

from __future__ import annotations

import re
import shutil
from contextlib import ExitStack
from datetime import UTC, datetime
from html import escape
from tempfile import SpooledTemporaryFile
from typing import IO, TextIO

from paraval.codec import finite
from paraval.records import AttemptResult, Outcome, TrialResult
from paraval.report.compare.case_results import variant_key
from paraval.report.contents import Contents
from paraval.report.reasons import reason
from paraval.report.summary.tally import Costs, Summary, Tally, VariantSummary
from paraval.text.terminal import one_line, printable
from paraval.text.words import variant_label

_MOST_OUTPUT_BYTES = 10_000
_LONGEST_NAME = 300
_IN_MEMORY = 100_000
"""Characters kept in memory per variant; more are buffered on disk."""
_CUT = "\n[cut]"
# The characters that XML forbids, rather than those it allows: Python is slow to compile a set of
# nearly everything.
_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


class AsJUnit:
    def write(self, contents: Contents, file: TextIO) -> None:
        summary, variants = contents.summary, contents.summary.variants
        file.write('<?xml version="1.0" encoding="UTF-8"?>\n')
        file.write(f"<testsuites {_counts(contents.run.suite, summary, summary.wall_s)}>\n")
        # Test cases come in plan order: they are buffered until their variant's turn.
        with ExitStack() as stack:
            held = {variant_key(one.variant): stack.enter_context(_spool()) for one in variants}
            for result in contents.trials:
                if (spool := held.get(variant_key(result.variant))) is not None:
                    spool.write(_test_case(contents.run.suite, result))
            for one, spool in zip(variants, held.values(), strict=True):
                file.write(f"  <testsuite {_suite_attributes(contents, one)}>\n")
                file.write(_properties(one))
                spool.seek(0)
                shutil.copyfileobj(spool, file)
                file.write("  </testsuite>\n")
        file.write("</testsuites>\n")


def _spool() -> IO[str]:
    return SpooledTemporaryFile(_IN_MEMORY, "w+", encoding="utf-8", newline="\n")


def _suite_attributes(contents: Contents, one: VariantSummary) -> str:
    name = variant_label(one.variant) or contents.run.suite
    started = datetime.fromtimestamp(contents.run.started_at, UTC).isoformat(timespec="seconds")
    counts = _counts(name, one, one.serial_s)
    return f'{counts} skipped="{one.skipped}" timestamp="{started}"'


def _properties(one: VariantSummary) -> str:
    """The known cost, with the names of the JSON report."""
    properties = {**_of_costs("", one.target), **_of_costs("judging.", one.judging)}
    if one.answers_cut:
        properties["answers_cut"] = str(one.answers_cut)
    properties.update(_of_deeds(one))
    if not properties:
        return ""
    lines = (
        f'      <property name="{_attribute(name)}" value="{value}"/>\n'
        for name, value in properties.items()
    )
    return f"    <properties>\n{''.join(lines)}    </properties>\n"


def _of_costs(start: str, costs: Costs) -> dict[str, str]:
    """Numbers only; without a sum if it is unknown."""
    told: dict[str, str] = {}
    if costs.cost_usd is not None:
        told["cost_usd"] = f"{costs.cost_usd:.9f}".rstrip("0").rstrip(".")
    if costs.is_partly_unknown:
        told["trials_of_unknown_cost"] = str(costs.trials_of_unknown_cost)
    if costs.cached:
        told["spent_usd"] = f"{costs.spent_usd or 0.0:.9f}".rstrip("0").rstrip(".")
        told["cached"] = str(costs.cached)
    return {f"{start}{name}": value for name, value in told.items()}


def _of_deeds(one: Tally) -> dict[str, str]:
    """Trials that were given a server, and in how many it was called, by the server's name."""
    told: dict[str, str] = {}
    if one.agents is not None:
        if one.agents.median_turns is not None:
            told["median_turns"] = f"{one.agents.median_turns:g}"
        for name, use in one.agents.mcp.items():
            told[f"mcp.{name}.handed"] = str(use.handed)
            if use.telling or not use.handed:
                told[f"mcp.{name}.called"] = str(use.called)
                told[f"mcp.{name}.calls"] = str(use.calls)
    if one.changes is not None:
        told["trials_that_changed_files"] = str(one.changes.changed)
        others = {
            "trials_whose_change_is_unknown": one.changes.unknown,
            "trials_that_tampered": one.changes.tampered,
            "trials_flagged": one.changes.flagged,
        }
        told |= {name: str(number) for name, number in others.items() if number}
    return told


def _counts(name: str, tally: Summary | VariantSummary, time_s: float) -> str:
    return (
        f'name="{_attribute(name)}" tests="{tally.trials}" failures="{tally.failed}"'
        f' errors="{tally.errors}" time="{_seconds(time_s)}"'
    )


def _test_case(suite: str, result: TrialResult) -> str:
    label = variant_label(result.variant)
    name = result.case_id if result.repeat == 1 else f"{result.case_id} #{result.repeat}"
    inside = _verdict(result.result) + _system_out(result.result)
    start = (
        f'    <testcase name="{_attribute(name)}"'
        f' classname="{_attribute(f"{suite}.{label}" if label else suite)}"'
        f' time="{_seconds(result.total_s)}"'
    )
    return f"{start}>\n{inside}    </testcase>\n" if inside else f"{start}/>\n"


def _verdict(end: AttemptResult) -> str:
    if end.outcome is Outcome.PASSED:
        return ""
    message = f'message="{_attribute(reason(end))}"'
    if end.outcome is Outcome.SKIPPED:
        return f"      <skipped {message}/>\n"
    tag = "failure" if end.outcome is Outcome.FAILED else "error"
    told = _text(reason(end))
    return f'      <{tag} {message} type="{end.outcome.value}">{told}</{tag}>\n'


def _system_out(end: AttemptResult) -> str:
    if end.output is None or not end.output.text:
        return ""
    return f"      <system-out>{_text(end.output.text)}</system-out>\n"


def _attribute(text: str) -> str:
    return escape(_ILLEGAL.sub("\ufffd", one_line(text, _LONGEST_NAME)))


def _text(text: str) -> str:
    near = printable(text[: _MOST_OUTPUT_BYTES * 2])
    encoded = near.encode()
    if len(encoded) > _MOST_OUTPUT_BYTES or len(text) > _MOST_OUTPUT_BYTES * 2:
        room = _MOST_OUTPUT_BYTES - len(_CUT)
        near = encoded[:room].decode(errors="ignore") + _CUT
    return escape(_ILLEGAL.sub("\ufffd", near), quote=False)


def _seconds(value: float) -> str:
    return f"{finite(value) or 0.0:.6f}"
