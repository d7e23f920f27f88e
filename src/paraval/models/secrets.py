"""Keys and other secrets, kept out of everything that is shown or stored.

A server may echo the key that it was sent: as it is, in other case, cut into lines, in base64,
URL-encoded, escaped or in hex. Two ways of looking find them, both in whole texts, so that it does
not matter how a key was split over the chunks of a stream:

- In what is left of a text without its separators, in small letters: there, most ways of writing a
  key are the same few. This is how keys that look random are found.
- As they stand. This is how the others are found: a password that is a word, in other case or with
  a space in it, would be taken out of answers where it is none.

Secrets shorter than 8 characters are left as they are: `none` or `EMPTY`, as local servers want it,
guards nothing, and taking it out would change answers, and with them grades.
"""

from __future__ import annotations

import base64
import html
import json
import re
import string
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote, quote_plus

MARK = "[REDACTED]"
SHORTEST_SECRET = 8
RANDOM_AT = 16
"""From so many characters on, a secret is taken for one that nobody writes by chance."""

_KEPT = (string.ascii_letters + string.digits).encode()
_SEPARATORS = bytes(set(range(256)) - set(_KEPT))
_SMALL = bytes(range(256)).lower()
_ESCAPED_BREAK = re.compile(rb"\\[nrt]")
_BETWEEN = r"(?:\\[nrt]|[^A-Za-z0-9])*"


class Redactor:
    """Takes known secrets out of texts."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._forms: dict[str, None] = {}
        """Looked for as they stand."""
        self._bare: dict[str, None] = {}
        """Looked for without separators."""
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        if len(secret) < SHORTEST_SECRET or secret in self._secrets:
            return
        self._secrets.add(secret)
        self._forms.update(dict.fromkeys(forms_of(secret)))
        self._bare.update(dict.fromkeys(bare_forms_of(secret)))

    def text(self, text: str) -> str:
        """The same text object where nothing is found."""
        for form in _longest_first(form for form in self._forms if form in text):
            text = text.replace(form, MARK)
        for form in _longest_first(self._bare_in(text)):
            text = _with_separators(form).sub(MARK, text)
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
        return bool([form for form in self._forms if form in whole] or self._bare_in(whole))

    def _bare_in(self, text: str) -> list[str]:
        data = text.encode(errors="replace")
        bare = _bare(data)
        if "\\" in text:
            # A line's end inside of JSON is written with a letter, which may be a separator too.
            bare = f"{bare} {_bare(_ESCAPED_BREAK.sub(b'', data))}"
        return [form for form in self._bare if form in bare]


def _longest_first(forms: Iterable[str]) -> list[str]:
    """No form may be cut up by a shorter one that it contains."""
    return sorted(forms, key=lambda form: (-len(form), form))


@lru_cache(maxsize=256)
def _with_separators(form: str) -> re.Pattern[str]:
    return re.compile(_BETWEEN.join(form), re.IGNORECASE | re.ASCII)


def strings_in(value: Any) -> Iterator[str]:
    """All texts in plain data, names included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for name, one in value.items():
            yield name
            if isinstance(one, str):
                yield one
            else:
                yield from strings_in(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from strings_in(one)


def forms_of(secret: str) -> set[str]:
    """The ways of writing a secret that are looked for as they stand: those that are not found
    without separators anyhow."""
    looks_random = _looks_random(secret)
    return {
        form
        for form in written_forms_of(secret)
        if len(form) >= SHORTEST_SECRET
        and not (looks_random and _is_long(_bare(form.encode(errors="surrogateescape"))))
    }


def bare_forms_of(secret: str) -> set[str]:
    """The same without separators, and those that are written with separators."""
    if not _looks_random(secret):
        return set()
    data = secret.encode(errors="surrogateescape")
    twice = _base64_forms(base64.b64encode(data))
    forms = {
        *(form.encode(errors="surrogateescape") for form in written_forms_of(secret)),
        *(form.encode() for form in twice),
        base64.b32encode(data),
        *(_spelt(data, each) for each in ("x%02x", "0x%02x", "u%04x", "%d")),
    }
    return {bare for bare in map(_bare, forms) if _is_long(bare)}


def written_forms_of(secret: str) -> set[str]:
    data = secret.encode(errors="surrogateescape")
    encoded = {quote(data, safe=""), quote(data), quote_plus(data)}
    escaped = {json.dumps(secret)[1:-1], json.dumps(secret, ensure_ascii=False)[1:-1]}
    return {
        secret,
        data.hex(),
        data.hex().upper(),
        *encoded,
        *(_with_small_hex(one) for one in encoded),
        quote(quote(data, safe=""), safe=""),
        *escaped,
        *(one.replace("/", "\\/") for one in escaped),
        html.escape(secret),
        *_base64_forms(data),
    }


def _looks_random(secret: str) -> bool:
    return len(secret) >= RANDOM_AT or any(character.isdigit() for character in secret)


def _is_long(bare: str) -> bool:
    return len(bare) >= SHORTEST_SECRET


def _bare(text: bytes) -> str:
    """As text: Python looks for a text in a text much faster than for bytes in bytes."""
    return text.translate(_SMALL, _SEPARATORS).decode("ascii")


def _spelt(data: bytes, each: str) -> bytes:
    r"""Character by character: `\x73\x6b`, `\u0073\u006b`, `&#115;&#107;`."""
    return "".join(each % byte for byte in data).encode()


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
