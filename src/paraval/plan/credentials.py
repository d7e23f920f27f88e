"""Keys have no place in files: finding those that were written there, without repeating them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from paraval.plan.places import Spot, Step

NAME_THE_VARIABLE = "keys have no place in a file; name the variable that holds it: api_key_env"

_KEY_NAMES = frozenset(("apikey", "key", "token", "accesstoken", "secret", "authorization"))
_KEY_VALUE = re.compile(
    r"\A(?:bearer\s+\S|sk-|sk_|gsk_|xai-|hf_[A-Za-z0-9]{8}|AIza[A-Za-z0-9_-]{8})", re.IGNORECASE
)
_VARIABLE = re.compile(r"\A[A-Za-z_][A-Za-z0-9_]*\Z")


def without_credentials(entry: Mapping[str, Any], spot: Spot) -> dict[str, Any]:
    """An entry without the keys in which something secret stands, after telling of each.

    Done before anything else looks at the entry: other messages show the values they are about.
    """
    wrong: set[str] = set()
    for steps in _secret_places(entry, ()):
        spot.at(*steps).report(NAME_THE_VARIABLE)
        wrong.add(str(steps[0]))
    variable = entry.get("api_key_env")
    if variable is not None and "api_key_env" not in wrong and not _names_a_variable(variable):
        spot.at("api_key_env").report(
            "must be the name of a variable, such as OPENAI_API_KEY, and never the key itself"
        )
        wrong.add("api_key_env")
    return {str(key): value for key, value in entry.items() if str(key) not in wrong}


def _names_a_variable(value: Any) -> bool:
    return isinstance(value, str) and _VARIABLE.match(value) is not None


def _secret_places(value: Any, steps: tuple[Step, ...]) -> Iterator[tuple[Step, ...]]:
    match value:
        case str() if _KEY_VALUE.match(value.strip()):
            yield steps
        case Mapping():
            for key, inner in value.items():
                name = str(key)
                # A mapping is no key: a JSON Schema may have a property of this name.
                if isinstance(inner, str) and re.sub("[^a-z]", "", name.lower()) in _KEY_NAMES:
                    yield (*steps, name)
                else:
                    yield from _secret_places(inner, (*steps, name))
        case list() | tuple():
            for number, inner in enumerate(value):
                yield from _secret_places(inner, (*steps, number))
