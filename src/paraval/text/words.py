"""Amounts, counts and names in readable words."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import starmap
from typing import Any

from paraval.records import TrialResult, Variant, choice_label, value_text


def dollars(usd: float) -> str:
    """`$12.34`, `$0.034`, `$0.000082`: two significant digits, and never an exponent."""
    size = abs(usd)
    if size == 0 or size >= 0.1:
        return f"${usd:,.2f}"
    if size < 1e-8:
        return "under $0.00000001"
    return f"${usd:.{1 - math.floor(math.log10(size))}f}"


def rough_time(seconds: float) -> str:
    """`8 s`, `2 min`, `1 h 05 min`: rounded as an estimate."""
    if not math.isfinite(seconds) or seconds < 0:
        return "?"
    if seconds < 90:
        return f"{math.ceil(seconds)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else "{} h {:02} min".format(*divmod(minutes, 60))


# Numbers and names in words, the same on terminals, in Markdown and in messages.

UNKNOWN = "-"


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 error`, `2 errors`, `1,200 trials`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def without_separators(number: str) -> str:
    """`1,234.5` as `1234.5`; anything else unchanged, also `1,5`."""
    is_separated = re.fullmatch(r"[-+]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", number.strip())
    return number.replace(",", "") if is_separated else number


def listed(parts: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *before, last = [*parts] or [""]
    return f"{', '.join(before)} and {last}" if before else last


def some(names: Sequence[str], most: int, number: int = 0) -> str:
    """`a, b, c and 2 more`; `number`: how many there are, if more than these."""
    more = max(number, len(names)) - most
    return ", ".join(names[:most]) + (f" and {more:,} more" if more > 0 else "")


def percent(share: float) -> str:
    """`90%`, `89.7%`; 0% and 100% only when it is exactly that."""
    value = share * 100
    if math.isclose(value, round(value), abs_tol=1e-7):
        return f"{round(value)}%"
    return f"{min(max(value, 0.1), 99.9):.1f}%"


def percent_range(low: float, high: float) -> str:
    """`55–95%`, in whole numbers; 0 and 100 only when it is exactly that, else `0.3–99.9%`. A
    narrower range has a digit more: `67.9–68.2%`; one without a width is a single number: `68%`."""
    exact = [percent(share).removesuffix("%") for share in (low, high)]
    whole = [
        f"{round(share * 100)}" if 0.005 < share < 0.995 else end
        for share, end in zip((low, high), exact, strict=True)
    ]
    return f"{'–'.join(dict.fromkeys(exact if whole[0] == whole[1] else whole))}%"


def duration(seconds: float | None) -> str:
    """`120 ms`, `6.2 s`, `2 min 05 s`, `1 h 02 min`."""
    if seconds is None or not math.isfinite(seconds) or seconds < 0:
        return UNKNOWN
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    if seconds < 3599.5:
        return "{} min {:02} s".format(*divmod(round(seconds), 60))
    return "{:,} h {:02} min".format(*divmod(round(seconds / 60), 60))


def size(number: float) -> str:
    """`640 MB`, `1.2 GB`: in powers of ten, like limits in suites."""
    if number >= 999.5e6:
        return f"{number / 1e9:,.1f} GB"
    return f"{number / 1e6:,.0f} MB" if number >= 0.95e6 else f"{number / 1e3:,.0f} kB"


def money(usd: float | None) -> str:
    """`$12.34`, or `-` if unknown."""
    return UNKNOWN if usd is None else dollars(usd)


def tokens(usage: Mapping[str, float | None]) -> str:
    """`1,100 in (200 of them cached) and 320 out`; empty if none were reported."""
    return listed(
        f"{usage[name]:,.0f} {word}{_of_them(usage, part, kind)}"
        for name, word, part, kind in (
            ("input_tokens", "in", "cached_tokens", "cached"),
            ("output_tokens", "out", "reasoning_tokens", "reasoning"),
        )
        if name in usage
    )


def _of_them(usage: Mapping[str, float | None], part: str, kind: str) -> str:
    return f" ({usage[part]:,.0f} of them {kind})" if usage.get(part) else ""


def variant_label(variant: Variant) -> str:
    """`small · with-tool · temp=0.7`; empty without a matrix."""
    return " · ".join(starmap(choice_label, variant.items()))


def telling_axes(variants: Collection[Variant]) -> list[str]:
    """The axes on which variants differ, in their order: the others need not be shown."""
    axes = dict.fromkeys(axis for variant in variants for axis in variant)
    return [
        axis
        for axis in axes
        if len({value_text(one[axis]) if axis in one else None for one in variants}) > 1
    ]


def trial_label(result: TrialResult) -> str:
    """`hello · small · with-tool · #2`; the repeat only from the second on."""
    repeat = f"#{result.repeat}" if result.repeat > 1 else ""
    return " · ".join(filter(None, (result.case_id, variant_label(result.variant), repeat)))


def call_text(name: str, arguments: Any) -> str:
    """A call of a tool: `get_weather(city="Paris")`."""

    def shown(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, default=str)

    if not isinstance(arguments, Mapping):
        return f"{name}({shown(arguments)})"
    return f"{name}({', '.join(f'{key}={shown(value)}' for key, value in arguments.items())})"
