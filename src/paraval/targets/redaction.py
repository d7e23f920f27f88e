"""Secrets: which ones a plan passes to its attempts, and how they are removed from saved files."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from paraval.documents.variables import env_file_of
from paraval.environment import PROXY_VARIABLES
from paraval.models.secrets import Redactor, secrets_of_variable
from paraval.records import AgentTarget, ChatTarget, CommandTarget, FunctionTarget, Plan, Target
from paraval.targets.answer import InvalidOutputError, open_plain_file
from paraval.templates.template import field_names, parse

PIECE_BYTES = 16 << 20
"""How much of a file is searched at once: a log is one piece, a huge patch several."""
IN_A_THREAD_FROM = 1 << 20
"""Bytes; searching more than this would delay other attempts."""


MOST_BYTES_OF_A_FOLDER = 1 << 30
"""How much of the files that an attempt leaves is searched."""


# ---- what is secret


def secrets_of(plan: Plan, environment: Mapping[str, str]) -> Iterator[str]:
    """Return all secrets that a plan passes to its attempts, graders and judges, and those of the
    suite's `.env` file."""
    if plan.source is not None:
        for name in env_file_of(Path(plan.source).parent):
            yield from secrets_of_variable(name, environment.get(name, ""), is_written=True)
    for target in {id(trial.target): trial.target for trial in plan.trials}.values():
        yield from _of_target(target, environment)
    for spec in plan.grading.every:
        if spec.model is not None:
            yield _key(spec.model.api_key_env, environment)
        yield from _passed(spec.options.get("pass_env") or (), environment)
        yield from _written(spec.options.get("env") or {})


def _of_target(target: Target, environment: Mapping[str, str]) -> Iterator[str]:
    if isinstance(target, ChatTarget | AgentTarget) and target.model is not None:
        yield _key(target.model.api_key_env, environment)
    if isinstance(target, AgentTarget):
        # Imported late: few plans have agents, whose adapters are slow to load.
        from paraval.agents.catalog import AGENTS, keys_for  # noqa: PLC0415

        if target.model is None:
            yield from keys_for(AGENTS[target.agent], environment).values()
        with_password = [name for name in PROXY_VARIABLES if "@" in environment.get(name, "")]
        yield from _passed(with_password, environment)
        for server in target.mcp:
            for name, value in (*server.env.items(), ("", server.url or "")):
                yield from secrets_of_variable(name, _literal(value))
    if isinstance(target, CommandTarget | FunctionTarget | AgentTarget):
        yield from _passed(target.pass_env, environment)
        yield from _written(target.env)


def _key(variable: str | None, environment: Mapping[str, str]) -> str:
    return environment.get(variable, "").strip() if variable else ""


def _passed(names: Iterable[str], environment: Mapping[str, str]) -> Iterator[str]:
    for name in names:
        yield from secrets_of_variable(name, environment.get(name, ""))


def _written(env: Mapping[str, str]) -> Iterator[str]:
    for name, value in env.items():
        yield from secrets_of_variable(name, _literal(value), is_written=True)


def _literal(value: str) -> str:
    """Return the value; empty if it has fields, because then it comes from a case or an axis and is
    not secret."""
    return "" if field_names(value) else "".join(map(str, parse(value)))


# ---- files


async def redact_folder(folder: str, redactor: Redactor) -> int:
    """Remove secrets from the files of a folder, their names, and link targets. Returns how many
    files were too large to search. Cancellation does not interrupt it."""
    if not _exists(folder):
        return 0
    work = asyncio.to_thread(_redact_folder, folder, redactor)
    return await asyncio.shield(asyncio.ensure_future(work))


def _redact_folder(folder: str, redactor: Redactor) -> int:
    unseen, left = 0, MOST_BYTES_OF_A_FOLDER
    for place, folders, files in os.walk(folder, topdown=False):
        for name in files:
            size = _size(f"{place}/{name}")
            if size > left:
                unseen += 1
            else:
                left -= size
                redact_file(f"{place}/{name}", redactor)
        for name in (*files, *folders):
            _redact_link(f"{place}/{name}", redactor)
            _redact_name(place, name, redactor)
    return unseen


def _redact_link(path: str, redactor: Redactor) -> None:
    with suppress(OSError):  # Not a link.
        if redactor.is_in([os.readlink(path)]):  # noqa: PTH115 - text, and quick
            os.unlink(path)  # noqa: PTH108


def _redact_name(place: str, name: str, redactor: Redactor) -> None:
    clean = redactor.text(name)
    if clean == name:
        return
    number, free = 1, clean
    while os.path.lexists(f"{place}/{free}"):
        number += 1
        free = f"{clean}-{number}"
    with suppress(OSError):
        os.rename(f"{place}/{name}", f"{place}/{free}")  # noqa: PTH104 - text, and quick


async def redact_files(paths: tuple[str, ...], redactor: Redactor) -> tuple[str, ...]:
    """Return the files that contained a secret, now removed. Cancellation does not interrupt it."""
    if sum(map(_size, paths)) < IN_A_THREAD_FROM:
        return _redact_all(paths, redactor)
    work = asyncio.to_thread(_redact_all, paths, redactor)
    return await asyncio.shield(asyncio.ensure_future(work))


def redact_file(path: str, redactor: Redactor) -> bool:
    """Remove secrets from a file; whether there were any. Anything but a regular file is left as it
    is.

    A new file replaces it, because the old one may be a link to elsewhere. If there is no room for
    the new file, the old one is deleted: better no log than one that contains a key.
    """
    try:
        source = open_plain_file(path)
    except InvalidOutputError:
        return False
    with os.fdopen(source, "rb") as file:
        if not any(redactor.is_in([piece]) for piece in _pieces(file)):
            return False
        file.seek(0)
        try:
            _replace(path, file, redactor)
        except OSError:
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108 - text, and quick
    return True


def _redact_all(paths: tuple[str, ...], redactor: Redactor) -> tuple[str, ...]:
    return tuple(path for path in paths if redact_file(path, redactor))


def _replace(path: str, file: BinaryIO, redactor: Redactor) -> None:
    clean = f"{path}.clean"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with suppress(FileNotFoundError):
        os.unlink(clean)  # noqa: PTH108 - text, and quick
    descriptor = os.open(clean, flags, os.fstat(file.fileno()).st_mode & 0o777)
    try:
        with os.fdopen(descriptor, "wb") as target:
            for piece in _pieces(file):
                target.write(redactor.text(piece).encode(errors="surrogateescape"))
        os.replace(clean, path)  # noqa: PTH105 - text, and quick
    except OSError:
        os.unlink(clean)  # noqa: PTH108
        raise


def _pieces(file: BinaryIO) -> Iterator[str]:
    """Yield all bytes, cut between lines."""
    while data := file.read(PIECE_BYTES):
        yield (data + file.readline(PIECE_BYTES)).decode(errors="surrogateescape")


def _exists(path: str) -> bool:
    return os.path.lexists(path)


def _size(path: str) -> int:
    try:
        return os.lstat(path).st_size
    except OSError:
        return 0
