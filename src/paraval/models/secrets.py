"""Keeps keys and other secrets out of everything that is shown or stored.

A server may echo the key it was sent: verbatim, in other case, split into lines, in base64,
URL-encoded, escaped or in hex. Two searches find them, both in whole texts, so it doesn't matter
how a key was split over the chunks of a stream:

- In the text without its separators, in lowercase: there, most ways of writing a key look the
  same. This finds keys that look random.
- Verbatim. This finds the others: a password that is a word, matched in other case or with a
  space in it, would be removed from answers where it is just a word.

Terminal codes between the letters of a secret don't hide it: both searches skip them.

Secrets shorter than 8 characters are left alone: `none` or `EMPTY`, as local servers want it,
protects nothing, and removing it would change answers and thus grades.
"""

from __future__ import annotations

import base64
import html
import json
import re
import string
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache, lru_cache
from types import NoneType
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit

MARK = "[REDACTED]"
SHORTEST_SECRET = 8
SHORTEST_WORD = 12
"""A shorter word of letters is no secret: `postgres` is the password of many databases."""
RANDOM_AT = 16
"""A secret of at least this length is assumed not to occur by chance."""

_KEPT = (string.ascii_letters + string.digits).encode()
_SEPARATORS = bytes(set(range(256)) - set(_KEPT))
_SMALL = bytes(range(256)).lower()
_ESCAPED_BREAK = re.compile(rb"\\[nrt]")
_BETWEEN = r"(?:\\[nrt]|[^A-Za-z0-9])*"
_ESCAPE = r"(?:\x1b|\\u001[bB]|\\x1[bB]|\\033)"
"""Verbatim, and as JSON and programs write it."""
_CODE = (
    rf"(?>(?:{_ESCAPE}\[|\x9b)[0-?]*[ -/]*[@-~]"
    rf"|(?:{_ESCAPE}[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x9c\\]*(?:\x07|\x9c|{_ESCAPE}\\+)"
    rf"|{_ESCAPE}[ -/]*[0-~])"
)
"""A color, a link, a title: invisible on a terminal and in our reports."""
_CODES = re.compile(_CODE)
_OPENINGS = ("\x1b", "\\u001", "\\x1", "\\033", *"\x90\x98\x9b\x9d\x9e\x9f")
_BETWEEN_WITH_CODES = rf"(?:{_CODE}|\\[nrt]|[^A-Za-z0-9\x1b])*"


class Redactor:
    """Removes known secrets from texts."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self._secrets: set[str] = set()
        self._forms: dict[str, None] = {}
        """Searched verbatim."""
        self._bare: dict[str, None] = {}
        """Searched without separators."""
        for secret in secrets:
            self.add(secret)

    def add(self, secret: str) -> None:
        if len(secret) < SHORTEST_SECRET or secret in self._secrets:
            return
        self._secrets.add(secret)
        self._forms.update(dict.fromkeys(forms_of(secret)))
        self._bare.update(dict.fromkeys(bare_forms_of(secret)))

    def __bool__(self) -> bool:
        """Whether there is anything to search for."""
        return bool(self._secrets)

    def text(self, text: str) -> str:
        """The text without secrets; the same object if there are none."""
        for form in _longest_first(form for form in self._forms if form in text):
            text = text.replace(form, MARK)
        plain = _without_codes(text)
        codes = plain is not text
        if codes:
            for form in _longest_first(form for form in self._forms if form in plain):
                text = _with_codes(form).sub(MARK, text)
        for form in _longest_first(self._bare_in(text, plain)):
            text = _with_separators(form, codes=codes).sub(MARK, text)
        return text

    def data(self, value: Any) -> Any:
        """Redact plain data and records: keys, values, and anything nested. The same object if
        there are no secrets."""
        return self._clean(value) if self and self.is_in(strings_in(value)) else value

    def is_in(self, texts: Iterable[str]) -> bool:
        """Whether any of the texts contains a secret: quick for the many that don't."""
        if not self._secrets:
            return False
        whole = "\n".join(texts)
        plain = _without_codes(whole)
        return any(form in whole or form in plain for form in self._forms) or bool(
            self._bare_in(whole, plain)
        )

    def _clean(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self._clean(name): self._clean(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(self._clean(one) for one in value)
        if is_dataclass(value) and not isinstance(value, type):
            return replace(
                value, **{one.name: self._clean(getattr(value, one.name)) for one in fields(value)}
            )
        return value

    def _bare_in(self, text: str, plain: str) -> list[str]:
        """`plain`: the text without terminal codes."""
        data = text.encode(errors="replace")
        bare = _bare(data)
        if "\\" in text:
            # JSON writes a line end with a letter, which may also be a separator.
            bare = f"{bare} {_bare(_ESCAPED_BREAK.sub(b'', data))}"
        if plain is not text:
            data = plain.encode(errors="replace")
            bare = f"{bare} {_bare(data)} {_bare(_ESCAPED_BREAK.sub(b'', data))}"
        return [form for form in self._bare if form in bare]


def _without_codes(text: str) -> str:
    """The same object if there are none."""
    if not any(opening in text for opening in _OPENINGS):
        return text
    plain = _CODES.sub("", text)
    return text if len(plain) == len(text) else plain


# ---- which values are secret

_NO_SECRET_NAME = re.compile(
    r"(?:PATH|HOME|LANG|LANGUAGE|LC_.*|TZ|TERM|USER|LOGNAME|SHELL|PWD|.*_(?:PATH|DIR|HOME))\Z",
    re.IGNORECASE,
)
_SECRET_NAME = re.compile(
    r"(?:\A|_)(?:\w*KEY|\w*TOKEN|SECRET|PASS|PASSWORD|PASSWD|PASSPHRASE|PWD|PAT|CREDENTIAL|AUTH"
    r"|COOKIE|SESSION|CERT|PRIVATE|SIGNATURE|DSN)S?(?:_|\Z)",
    re.IGNORECASE,
)
_PATH = re.compile(r"(?:~|\.{1,2})?/")
_NUMBER = re.compile(r"[-+]?[\d.,_]+\Z")
_WORDS = re.compile(r"(?:[A-Za-z]+|\d{1,5}|\w{1,3})(?:[-_. ,:/]+(?:[A-Za-z]+|\d{1,5}|\w{1,3}))*\Z")
"""Names of regions, models, hosts, versions: `us-east-1`, `localhost:5432`."""
_RANDOM_RUN = re.compile(r"(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z0-9]{16,}")


def names_a_secret(variable: str) -> bool:
    return _SECRET_NAME.search(variable) is not None and not _NO_SECRET_NAME.match(variable)


def secrets_of_variable(name: str, value: str, *, is_written: bool = False) -> tuple[str, ...]:
    """Which parts of an attempt's environment variable are secret; empty if harmless.

    The rule, since removing harmless text from answers would change grades:

    - Never secret: fewer than 8 characters, a path, a URL without a password or a key in it, a
      number, one word of letters (of fewer than 12 if the variable's name marks it as a secret),
      and variables known to be harmless (`HOME`, `LANG`, `CACHE_DIR`).
    - A value that is passed through (`pass_env`, a tool server's `env`) is secret, except words
      such as `us-east-1`, unless its name marks it as one (`..._KEY`, `..._TOKEN`, `..._PASSWORD`).
    - A value written in the suite file (`is_written`) is secret only if its name marks it as one or
      it looks random: letters and digits, 16 or more in one run.

    In a URL, the password and the keys are secret; in several lines, each one that looks random.
    """
    value = value.strip()
    if len(value) < SHORTEST_SECRET or _NO_SECRET_NAME.match(name):
        return ()
    if "://" in value:
        parts = _secrets_of_url(value)
        return (value, *parts) if parts else ()
    is_named = _SECRET_NAME.search(name) is not None
    if _PATH.match(value) or _NUMBER.match(value):
        return ()
    if value.isalpha() and not (is_named and len(value) >= SHORTEST_WORD):
        return ()
    if not is_named:
        harmless = not _RANDOM_RUN.search(value) if is_written else bool(_WORDS.match(value))
        if harmless:
            return ()
    lines = value.splitlines()
    return (value, *(line.strip() for line in lines[1:] if _RANDOM_RUN.search(line)))


def _secrets_of_url(url: str) -> list[str]:
    """The password, and the parameters named like secrets."""
    try:
        parts = urlsplit(url)
        query = parse_qsl(parts.query)
    except ValueError:
        return []
    found = [value for name, value in query if _SECRET_NAME.search(name)]
    return [*found, *([unquote(parts.password)] if parts.password else [])]


# ---- forms of a secret


def _longest_first(forms: Iterable[str]) -> list[str]:
    """Longest first: no form may be cut up by a shorter one that it contains."""
    return sorted(forms, key=lambda form: (-len(form), form))


@lru_cache(maxsize=256)
def _with_separators(form: str, *, codes: bool) -> re.Pattern[str]:
    between = _BETWEEN_WITH_CODES if codes else _BETWEEN
    return re.compile(between.join(form), re.IGNORECASE | re.ASCII)


@lru_cache(maxsize=256)
def _with_codes(form: str) -> re.Pattern[str]:
    return re.compile(f"{_CODE}*".join(map(re.escape, form)))


def strings_in(value: Any) -> list[str]:
    """All texts in plain data and records, names included."""
    found: list[str] = []
    _gather(value, found)
    return found


def _gather(value: Any, found: list[str]) -> None:
    kind: Any = type(value)
    if kind in _WITHOUT_TEXT:
        return
    if isinstance(value, str):
        found.append(value)
    elif isinstance(value, (list, tuple)):
        for one in value:
            _gather(one, found)
    elif names := _field_names(kind):
        for name in names:
            _gather(getattr(value, name), found)
    elif isinstance(value, Mapping):
        for name, one in value.items():
            _gather(name, found)
            _gather(one, found)


_WITHOUT_TEXT = frozenset((NoneType, bool, int, float))


@cache
def _field_names(kind: Any) -> tuple[str, ...]:
    """Of a record; empty for anything else."""
    return tuple(field.name for field in fields(kind)) if is_dataclass(kind) else ()


def forms_of(secret: str) -> set[str]:
    """The forms of a secret to search verbatim: those not found without separators anyway."""
    looks_random = _looks_random(secret)
    return {
        form
        for form in written_forms_of(secret)
        if len(form) >= SHORTEST_SECRET
        and not (looks_random and _is_long(_bare(form.encode(errors="surrogateescape"))))
    }


def bare_forms_of(secret: str) -> set[str]:
    """The forms to search without separators, including those written with separators."""
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
    """As text: Python searches text in text much faster than bytes in bytes."""
    return text.translate(_SMALL, _SEPARATORS).decode("ascii")


def _spelt(data: bytes, each: str) -> bytes:
    r"""Character by character: `\x73\x6b`, `\u0073\u006b`, `&#115;&#107;`."""
    return "".join(each % byte for byte in data).encode()


def _with_small_hex(encoded: str) -> str:
    pieces = encoded.split("%")
    return "%".join([pieces[0], *(piece[:2].lower() + piece[2:] for piece in pieces[1:])])


def _base64_forms(data: bytes) -> set[str]:
    """The base64 characters that depend only on the secret, for each of its three possible
    alignments."""
    forms = set()
    for before in range(3):
        shifted = bytes(before) + data
        first = (8 * before + 5) // 6
        last = 8 * len(shifted) // 6
        forms.add(base64.b64encode(shifted).decode()[first:last])
        forms.add(base64.urlsafe_b64encode(shifted).decode()[first:last])
    return forms
