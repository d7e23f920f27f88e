"""What was changed between two runs of a suite, by the digests of its parts.

Runs of tests have no parts but their code; what cases those had is told by their names.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from paraval.report.history.records import Change

PARTS = ("cases", "prompt", "models", "target", "graders", "workspace", "matrix", "repeats", "code")
"""In the order in which they are told. There is one more, case_count, told with the cases."""
_TOLD_AS_THEY_ARE = frozenset(("repeats",))


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """What a run was made of."""

    parts: Mapping[str, str]
    cases: str
    """A digest: the suite's own of ids, inputs and expectations, or of the run's ids."""
    case_count: int | None

    def has_cases_of(self, other: Made) -> bool:
        return bool(self.cases) and self.cases == other.cases


def made_of(parts: Mapping[str, str], case_ids: Iterable[str]) -> Made:
    """`case_ids` count only where the parts say nothing of cases."""
    if "cases" in parts:
        count = parts.get("case_count", "")
        number = int(count) if count.isdecimal() else None
        return Made(parts=parts, cases=parts["cases"], case_count=number)
    ids = sorted(case_ids)
    words = "\0".join(ids).encode(errors="surrogatepass")
    digest = hashlib.blake2b(words, digest_size=16).hexdigest()
    return Made(parts=parts, cases=f"ids:{digest}" if ids else "", case_count=len(ids))


def changes_between(before: Made, now: Made) -> Iterator[Change]:
    """Of parts that both tell of; another version of paraval may know others."""
    for part in PARTS:
        then, later = _told(before, part), _told(now, part)
        if then is not None and later is not None and then != later:
            yield Change(part=part, words=_words(part, before, now))


def _told(made: Made, part: str) -> str | None:
    return (made.cases or None) if part == "cases" else made.parts.get(part)


def _words(part: str, before: Made, now: Made) -> str:
    if part in _TOLD_AS_THEY_ARE:
        return f"{part}: {before.parts[part]} -> {now.parts[part]}"
    counts = before.case_count, now.case_count
    if part == "cases" and None not in counts and counts[0] != counts[1]:
        return f"cases: {counts[0]:,} -> {counts[1]:,}"
    return f"{part} changed"
