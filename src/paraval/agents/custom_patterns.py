"""The suite's own patterns for a refusal, looked for in what a user's agent printed.

A pattern may take for ever, and holds up all of this process while it does. So it is matched in
another one, which is ended after its time. For a thread: it blocks.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace

from paraval.agents.complaints import wait_told
from paraval.agents.json_lines import in_words
from paraval.agents.program import AgentEnd, Reading, Transcript
from paraval.processes.quick import run_quickly
from paraval.records import CustomAgent

MOST_LINES = 200
"""Of the end of each stream ..."""
LONGEST_LINE = 500
"""... and of each line, characters."""
PATIENCE_S = 5.0
TOO_SLOW = (
    f"output.rate_limited and output.refused were not matched in {PATIENCE_S:g} s and were given up"
    " on; a repeat inside a repeat, such as (a+)+, is the usual cause"
)

_SEARCH = """\
import json, re, sys
patterns, lines = json.load(sys.stdin)
for number, pattern in enumerate(patterns):
    for line in lines:
        if re.search(pattern, line):
            sys.exit(print(json.dumps([number, line])))
"""


def has_patterns(custom: CustomAgent | None) -> bool:
    return custom is not None and not (custom.rate_limited is None and custom.refused is None)


def read_by_patterns(reading: Reading, custom: CustomAgent, transcript: Transcript) -> Reading:
    """The same end, or the one that the suite's patterns see in what it printed."""
    wanted = [
        (pattern, end)
        for pattern, end in (
            (custom.rate_limited, AgentEnd.RATE_LIMITED),
            (custom.refused, AgentEnd.REFUSED_KEY),
        )
        if pattern is not None
    ]
    lines = [*_last_first(transcript.stderr), *_last_first(transcript.stdout)]
    if reading.end is None or not wanted or not lines:
        return reading
    order = json.dumps([[pattern for pattern, _ in wanted], lines]).encode()
    ended = run_quickly(
        (sys.executable, "-I", "-S", "-c", _SEARCH), env={}, stdin=order, timeout=PATIENCE_S
    )
    if ended.timed_out:
        return replace(reading, notes=(*reading.notes, TOO_SLOW))
    if not ended.stdout:
        return reading
    number, line = json.loads(ended.stdout)
    end = wanted[number][1]
    wait = wait_told(line) if end is AgentEnd.RATE_LIMITED else None
    return replace(reading, end=end, message=in_words(line), retry_after=wait)


def _last_first(stream: str) -> list[str]:
    lines = stream[-MOST_LINES * LONGEST_LINE :].split("\n")
    return [line[:LONGEST_LINE] for line in reversed(lines[-MOST_LINES:]) if line.strip()]
