"""How many tokens a call will take, before anyone counted them: for reservations and forecasts.

There is no tokenizer here: each provider has its own, and some publish none. A token is taken for
three bytes of UTF-8, on purpose a little too many. By the usual rules of thumb, English prose has
four to five bytes a token, so that the estimate is a third to a half too high; code and numbers
have about three, and so have Chinese, Japanese and Korean (one character). It is too low, by half
or more, for what no tokenizer has words for, such as base64 or random letters. Whoever reserves by
it corrects it by what answers tell of their usage.
"""

from __future__ import annotations

from paraval.models.anthropic_messages import DEFAULT_MAX_TOKENS
from paraval.models.conversation import Request
from paraval.records import Provider

BYTES_PER_TOKEN = 3.0
TOKENS_PER_MESSAGE = 5.0
"""What providers put around each message: its role, its beginning and end."""
DEFAULT_OUTPUT_TOKENS = 1000.0
"""Where nothing bounds an answer."""

_BOUNDS = ("max_completion_tokens", "max_output_tokens", "max_tokens")
"""An entry's options are laid over the request's own, so they decide."""


def estimated_tokens(text: str) -> float:
    """About how many tokens a text has; rather too many than too few."""
    length = len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return length / BYTES_PER_TOKEN


def expected_tokens(request: Request) -> tuple[float, float]:
    """Input and output; of output as much as the request allows, for all of it may come."""
    read = sum(
        estimated_tokens(message.content) + TOKENS_PER_MESSAGE for message in request.messages
    )
    longest = longest_answer(request)
    return read, DEFAULT_OUTPUT_TOKENS if longest is None else longest


def longest_answer(request: Request) -> float | None:
    """How many tokens an answer may have; None where nothing bounds it."""
    said = [request.model.options.get(name) for name in _BOUNDS] + [request.max_tokens]
    for bound in said:
        if isinstance(bound, int | float) and not isinstance(bound, bool) and bound > 0:
            return float(bound)
    # Anthropic wants a bound, so that one is always sent.
    return DEFAULT_MAX_TOKENS if request.model.provider is Provider.ANTHROPIC else None
