"""Keeps keys out of everything that is shown or stored.

A server may echo the key that it was sent: as it is, in base64, URL-encoded, escaped or in hex.
Each of these forms of each key is taken out of whole texts, so that it does not matter how a key
was split over the chunks of a stream.

Keys shorter than 8 characters are left as they are: `none` or `EMPTY`, as local servers want it,
guards nothing, and taking it out would change answers, and with them grades.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

MARK = "[REDACTED]"
SHORTEST_SECRET = 8


class Redactor:
    """Takes known secrets out of texts."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._forms: tuple[str, ...] = ()
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        if len(secret) < SHORTEST_SECRET or secret in self._secrets:
            return
        self._secrets.add(secret)
        forms = {form for known in self._secrets for form in forms_of(known)}
        # Longest first: no form may be cut up by a shorter one that it contains.
        self._forms = tuple(sorted(forms, key=lambda form: (-len(form), form)))

    def text(self, text: str) -> str:
        """The same text object where nothing is found."""
        for form in self._forms:
            if form in text:
                text = text.replace(form, MARK)
        return text

    def data(self, value: Any) -> Any:
        """The same for plain data: keys, values, and what is nested in them."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.data(name): self.data(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self.data(one) for one in value)
        return value

    def is_in(self, texts: Iterable[str]) -> bool:
        """Whether any of the texts holds a secret: quick, for the many that hold none."""
        whole = "\n".join(texts)
        return any(form in whole for form in self._forms)


def strings_in(value: Any) -> Iterator[str]:
    """All texts in plain data, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield name
            yield from strings_in(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from strings_in(one)


def forms_of(secret: str) -> set[str]:
    """Every way of writing a secret that is looked for."""
    data = secret.encode(errors="surrogateescape")
    encoded = {quote(data, safe=""), quote(data), quote_plus(data)}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    forms = {
        secret,
        data.hex(),
        data.hex().upper(),
        *encoded,
        *(_with_small_hex(one) for one in encoded),
        *escaped,
        *(one.replace("/", "\\/") for one in escaped),
        html.escape(secret),
        *_base64_forms(data),
    }
    return {form for form in forms if len(form) >= SHORTEST_SECRET}


def _with_small_hex(encoded: str) -> str:
    pieces = encoded.split("%")
    return "%".join([pieces[0], *(piece[:2].lower() + piece[2:] for piece in pieces[1:])])


def _base64_forms(data: bytes) -> set[str]:
    """What base64 makes of it wherever it stands in the bytes: the characters that depend on
    nothing but the secret, for each of the three places that it can begin at."""
    forms = set()
    for before in range(3):
        shifted = bytes(before) + data
        first = (8 * before + 5) // 6
        last = 8 * len(shifted) // 6
        forms.add(base64.b64encode(shifted).decode()[first:last])
        forms.add(base64.urlsafe_b64encode(shifted).decode()[first:last])
    return forms
