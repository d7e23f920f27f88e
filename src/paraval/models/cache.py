"""Answers that were paid for, kept to be used again: a folder of files named by what was asked.

A file is written aside and renamed, so that several engines share one folder without locks and none
ever reads half a file. A file that is damaged, foreign, or of a newer paraval is as good as none.
When to use an answer again is the client's decision.

Writing is done at once, on the caller's thread: for a usual answer it takes less than 100 µs, also
beside a store that syncs all the time, and a hand-over to a thread would cost about as much.
Nothing is synced: what a power cut takes is asked for again.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import secrets
import stat
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

from paraval.models.conversation import Request

KEY_VERSION = 1
"""Of what a key is made from, and of how requests are built from it."""
FILE_VERSION = 1
LONGEST_FILE_BYTES = 32 << 20
"""Of any answer that is let through, escaped; a longer file is not one of ours."""
LEFTOVER_AGE_S = 3600.0

_CHECK_DIGITS = 32
_BEFORE_CHECK = b'{"check":"'
_AFTER_CHECK = b'",'
_START = len(_BEFORE_CHECK) + _CHECK_DIGITS + len(_AFTER_CHECK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cached:
    """An answer as it was when it was asked for."""

    text: str
    usage: Mapping[str, float] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def request_key(request: Request, *, identity: str | None = None) -> str:
    """A hash of all that decides the answer; of nothing that names a key or a price.

    The account is part of it: some gateways choose by it who answers.

    `identity` stands for the address where that says nothing: a loopback server's port is another
    one each time, but its scenario is the same.
    """
    model = request.model
    decides = {
        "version": KEY_VERSION,
        "provider": model.provider,
        "address": model.base_url or model.scenario if identity is None else identity,
        "account": model.account,
        "model": model.model,
        "options": model.options,
        "messages": [(message.role, message.content) for message in request.messages],
        "temperature": request.temperature,
        "max_tokens": request.max_tokens,
        "repeat": request.repeat,
    }
    canonical = json.dumps(decides, sort_keys=True, separators=(",", ":"), default=_plain)
    return blake2b(canonical.encode("ascii"), digest_size=20).hexdigest()


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else repr(value)


class Cache:
    """A folder of answers. It never fails: what cannot be kept or read is asked for again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._aside = f"{folder}/new"
        self._ready = False
        self._numbers = itertools.count()
        # Engines on other machines may share the folder, so a pid is not enough.
        self._own_name = secrets.token_hex(8)
        self._complaint: str | None = None
        self._complained = False

    def get(self, key: str) -> Cached | None:
        try:
            return _read(_contents(self._path(key)), key)
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def put(self, key: str, answer: Cached) -> bool:
        """Whether it is kept now. Why not is told once, by `complaint`."""
        try:
            self._write(key, _written(key, answer))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            self._complain(error)
            return False
        return True

    def forget(self, key: str) -> None:
        with contextlib.suppress(OSError):
            Path(self._path(key)).unlink()

    def complaint(self) -> str | None:
        """Why answers are not kept, the first time that it is asked after it happened."""
        told, self._complaint = self._complaint, None
        return told

    def _complain(self, error: Exception) -> None:
        if self._complained:
            return
        self._complained = True
        why = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        self._complaint = (
            f"answers are not kept in the cache ({self._folder}): {why}; "
            "the run goes on, and equal requests will be paid for again"
        )

    def _path(self, key: str) -> str:
        return f"{self._folder}/{key[:2]}/{key}.json"

    def _write(self, key: str, contents: bytes) -> None:
        if not self._ready:
            _prepare(Path(self._aside))
            self._ready = True
        aside = f"{self._aside}/{self._own_name}-{next(self._numbers)}"
        file = _new_file(aside)
        try:
            _fill(file, contents)
            _move(aside, self._path(key))
        except BaseException:
            with contextlib.suppress(OSError):
                Path(aside).unlink()
            raise


def _prepare(aside: Path) -> None:
    """The folder for files that are being written, without those of engines that died over it."""
    aside.mkdir(parents=True, exist_ok=True)
    oldest = time.time() - LEFTOVER_AGE_S
    for leftover in aside.iterdir():
        with contextlib.suppress(OSError):
            if leftover.stat().st_mtime < oldest:
                leftover.unlink()


def _new_file(path: str) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)


def _fill(file: int, contents: bytes) -> None:
    try:
        rest = memoryview(contents)
        while rest:
            rest = rest[os.write(file, rest) :]
    finally:
        os.close(file)


def _move(aside: str, path: str) -> None:
    try:
        os.replace(aside, path)  # noqa: PTH105 - as above
    except FileNotFoundError:
        Path(path).parent.mkdir(exist_ok=True)
        Path(aside).replace(path)


def _written(key: str, answer: Cached) -> bytes:
    body = {
        "version": FILE_VERSION,
        "key": key,
        "text": answer.text,
        "usage": None if answer.usage is None else dict(answer.usage),
        "metadata": dict(answer.metadata),
        "notes": answer.notes,
    }
    rest = json.dumps(body, separators=(",", ":"), allow_nan=False)[1:].encode("ascii")
    return b"".join((_BEFORE_CHECK, _check(rest), _AFTER_CHECK, rest))


def _check(rest: bytes) -> bytes:
    """Over all bytes that follow it: one flipped bit in an answer would else be an answer too."""
    return blake2b(rest, digest_size=_CHECK_DIGITS // 2).hexdigest().encode("ascii")


def _contents(path: str) -> bytes:
    # Nothing there may hold the run up: not a pipe without a writer, not a link to a device.
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LONGEST_FILE_BYTES:
            raise ValueError("no file of ours")
        return os.read(file, found.st_size)
    finally:
        os.close(file)


def _read(contents: bytes, key: str) -> Cached:
    check = contents[len(_BEFORE_CHECK) : len(_BEFORE_CHECK) + _CHECK_DIGITS]
    rest = contents[_START:]
    if check != _check(rest):
        raise ValueError("damaged")
    body = json.loads(b"{" + rest)
    if body["version"] != FILE_VERSION or body["key"] != key:
        raise ValueError("of another version, or under another name")
    text, usage, metadata, notes = (body[name] for name in ("text", "usage", "metadata", "notes"))
    if not isinstance(text, str) or not isinstance(metadata, dict) or not isinstance(notes, list):
        raise TypeError("not an answer")
    if usage is not None and not isinstance(usage, dict):
        raise TypeError("not an answer")
    return Cached(text=text, usage=usage, metadata=metadata, notes=tuple(notes))
