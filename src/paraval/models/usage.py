"""The tokens that a provider says a call took: checked, before anyone reckons a cost from them.

A wrong count must not empty a budget, nor hold up an account that is paced by its tokens. What
makes no sense is unknown, and says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paraval.models.conversation import Request
from paraval.models.reading import NO_USAGE, kind_of

MOST_TOKENS = 20_000_000
"""Of one call; no model takes in or gives more."""
TOKENS_PER_BYTE = 4
"""More than any tokenizer makes of any text."""
ADDED_TOKENS = 10_000
"""What a provider puts around a request by itself."""
FETCHED_TOKENS = 1_000_000
"""What a provider may fetch for a request that has options: tools that it runs, stored prompts."""
PLENTY_OF_OUTPUT = 100_000
"""Reasoning counts as output, and may go beyond what was asked for."""
MOST_OUTPUT = 1_000_000
"""Where nothing was asked for."""
_OUTPUT_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")


def unbelievable(usage: Mapping[str, float], request: Request, size: int) -> str:
    """A note, where this cannot have been used for a request of so many bytes."""
    output = usage["output_tokens"]
    if output > PLENTY_OF_OUTPUT and output > _most_output(request):
        return senseless(f"{output:,.0f} output tokens are more than could be")
    most_input = TOKENS_PER_BYTE * size + ADDED_TOKENS
    asked = usage["input_tokens"]
    if asked > most_input + (FETCHED_TOKENS if request.model.options else 0):
        return senseless(f"{asked:,.0f} input tokens for {size:,} bytes")
    return ""


def _most_output(request: Request) -> float:
    options = request.model.options
    told = [request.max_tokens, *(options.get(name) for name in _OUTPUT_LIMITS)]
    asked = [limit for limit in told if isinstance(limit, int)]
    return max(PLENTY_OF_OUTPUT, 4 * max(asked)) if asked else MOST_OUTPUT


def checked_usage(told: Mapping[str, Any]) -> tuple[dict[str, float] | None, str]:
    """Tokens by our names, and a note; None where they are not told or make no sense."""
    amounts = {name: amount for name, amount in told.items() if amount is not None}
    for name, amount in amounts.items():
        if not _is_amount(amount):
            return None, senseless(f"{name} is {_amount_text(amount)}")
    if "input_tokens" not in amounts or "output_tokens" not in amounts:
        return None, NO_USAGE
    for part, whole in (("cached_tokens", "input_tokens"), ("reasoning_tokens", "output_tokens")):
        if amounts.get(part, 0) > amounts[whole]:
            return None, senseless(f"{part} are more than {whole}")
    return amounts, ""


def _amount_text(amount: Any) -> str:
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        return kind_of(amount)
    return "below 0" if amount < 0 else "too large"


def senseless(why: str) -> str:
    return f"the usage that the provider told makes no sense ({why}): its cost is unknown"


def _is_amount(amount: Any) -> bool:
    if isinstance(amount, bool) or not isinstance(amount, int | float):
        return False
    return 0 <= amount <= MOST_TOKENS  # NaN is in no range


def amount_in(told: Mapping[str, Any], group: str, name: str) -> Any:
    """`prompt_tokens_details.cached_tokens` and its like; None where it is not told."""
    inner = told.get(group)
    return inner.get(name) if isinstance(inner, Mapping) else None
