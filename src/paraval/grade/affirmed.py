"""What an answer affirms: its text, with what it denies blanked out.

"CosineSimilarity is not defined anywhere" names it and has not found it. What is denied is told by
English phrases, sentence by sentence; code in fences and in quotes denies nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_NOT = r"(?:\s+not|n['\u2019]t|not)"
_DENIAL = re.compile(
    # Everything that is repeated is bounded: a megabyte of "not not not" is read once.
    rf"\b(?:is|are|was|were|do|does|did|has|have|had|can|could){_NOT}\s{{1,5}}"
    r"(?:(?:actually|currently|yet|be|been|seem|appear|to|able|even|really|any)\s{1,5}){0,4}"
    r"(?:defined|exist|exists|found|find|locate|located|see|present|there|implemented|declared"
    r"|available|included|mentioned|identify|identified|used|anywhere|contain|a\s+part)\b"
    r"|\b(?:unable|failed|fail)\s+to\s+(?:find|locate|identify)\b"
    r"|\b(?:there(?:\s+is|\s+are|['\u2019]s|\s+was|\s+were)\s+no|no\s+such|nowhere|nonexistent"
    r"|non-existent|not\s+found|found\s+no|find\s+no)\b"
    r"|\bno\s+(?:\w{1,30}\s+){0,2}(?:named|called|matches|trace|sign|mention|evidence)\b"
    r"|\b(?:isn|doesn|aren|wasn|weren|don|didn|couldn|can)['\u2019]t\s+exist\b",
    re.IGNORECASE,
)
"""The clause that it is in denies what it names."""
_EXCEPTION = re.compile(
    r"(?:\bnot|n['\u2019]t)\s+(?:in|at|from|by)\b|\b(?:rather\s+than|instead\s+of)\b"
    r"|,\s{0,3}not\s+(?!only\b|just\b)",
    re.IGNORECASE,
)
"""What stands behind it in its clause is denied."""
_CONDITION = re.compile(
    r"(?:\b(?:if|when|whether|unless|case|because)\b[^,]{0,80}|\b(?:that|which|who)\s{1,3})$",
    re.IGNORECASE,
)
"""Before a denial: it tells what code does ("files that do not exist"), and denies nothing."""
_CONDITION_REACH = 120

_SENTENCE_END = re.compile(r"[.!?](?=\s|$)")
_CLAUSE_END = re.compile(
    r";|\s[\u2013\u2014]\s|\b(?:but|however|instead(?!\s+of)|yet)\b", re.IGNORECASE
)
_QUOTED = re.compile(r"`[^`\n]{1,300}`|\"[^\"\n]{1,300}\"")
_BULLET = re.compile(r"\s*(?:[-*•+]|\d{1,3}[.)])\s")
_FENCE = ("```", "~~~")


def affirmed(text: str) -> str:
    """The same text, as long as it was, with spaces where something is denied."""
    return "\n".join(_affirmed_lines(text.split("\n")))


def _affirmed_lines(lines: list[str]) -> Iterator[str]:
    in_fence = False
    denied_list = False
    for line in lines:
        if line.lstrip().startswith(_FENCE):
            in_fence, denied_list = not in_fence, False
            yield line
        elif in_fence:
            yield line
        elif denied_list and _BULLET.match(line):
            yield " " * len(line)
        else:
            kept = "".join(_affirmed_sentences(line))
            # "I could not find:", and a list of what.
            denied_list = kept != line and line.rstrip().endswith(":")
            yield kept


def _affirmed_sentences(line: str) -> Iterator[str]:
    # Phrases are looked for where they are no code; the places stay the same.
    spoken = _QUOTED.sub(lambda quote: " " * len(quote[0]), line)
    if not (_DENIAL.search(spoken) or _EXCEPTION.search(spoken)):
        yield line
        return
    begin = 0
    for end in [*(found.end() for found in _SENTENCE_END.finditer(spoken)), len(line)]:
        yield _affirmed_sentence(line[begin:end], spoken[begin:end])
        begin = end


@dataclass(frozen=True, slots=True, kw_only=True)
class _Clause:
    begin: int
    end: int
    denial: int | None
    """Where a phrase that denies begins in it."""


def _affirmed_sentence(sentence: str, spoken: str) -> str:
    kept: list[str] = []
    is_affirmed_later = False
    for clause in reversed(_clauses(spoken)):
        keep = clause.end
        if clause.denial is not None:
            # "X is not in a.go, but in b.go" is about X all the same.
            keep = clause.denial if is_affirmed_later else clause.begin
        exception = _EXCEPTION.search(spoken, clause.begin, keep)
        if exception is not None:
            keep = exception.start()
        kept.append(sentence[clause.begin : keep] + " " * (clause.end - keep))
        is_affirmed_later = is_affirmed_later or clause.denial is None
    return "".join(reversed(kept))


def _clauses(spoken: str) -> list[_Clause]:
    begin = 0
    clauses = []
    for end in [*(found.start() for found in _CLAUSE_END.finditer(spoken)), len(spoken)]:
        if end > begin:
            clauses.append(_Clause(begin=begin, end=end, denial=_denial(spoken, begin, end)))
            begin = end
    return clauses


def _denial(spoken: str, begin: int, end: int) -> int | None:
    for found in _DENIAL.finditer(spoken, begin, end):
        before = spoken[max(begin, found.start() - _CONDITION_REACH) : found.start()]
        if not _CONDITION.search(before):
            return found.start()
    return None
