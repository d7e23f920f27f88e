"""The baseline run of each suite: `baselines.json` in the store, readable by people.

A suite has at most one baseline at a time. Callers decide whether a run is fit to be one.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paraval.dataclass import dataclass
from paraval.errors import StoreError
from paraval.store.folder import prepare_folder, unusable

BASELINES_FILE = "baselines.json"
LOCK_FILE = "baselines.lock"
PATIENCE_S = 10.0
"""Seconds: the lock is held only while one small file is written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBaseline:
    """A suite's baseline."""

    run: str
    """The run's id, or the absolute path of its folder if it is not in this store."""
    set_at: str
    """`2026-01-31T12:00:00.000Z`."""
    pass_rate: float
    """When it was set."""


class Baselines:
    """The baselines of one store, by suite."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._file = root / BASELINES_FILE

    def all(self) -> dict[str, SetBaseline]:
        """All baselines, ordered by suite name."""
        try:
            text = self._file.read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except OSError as error:
            raise StoreError(f"{self._file} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise self._damaged("it is not UTF-8") from error
        try:
            told = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._damaged(f"it is not JSON ({error})") from error
        if not isinstance(told, dict):
            raise self._damaged("it is not a mapping of suites")
        return {suite: self._entry(suite, told[suite]) for suite in sorted(told)}

    def of(self, suite: str) -> SetBaseline | None:
        return self.all().get(suite)

    def set(self, suite: str, baseline: SetBaseline) -> SetBaseline | None:
        """Set a baseline; returns the previous one."""
        prepare_folder(self._root)
        with self._locked():
            known = self.all()
            before = known.get(suite)
            self._write({**known, suite: baseline})
        return before

    def clear(self, suite: str) -> SetBaseline | None:
        """Remove a baseline; returns it, or None if there was none."""
        if suite not in self.all():
            return None
        with self._locked():
            known = self.all()
            before = known.pop(suite, None)
            self._write(known)
        return before

    def _entry(self, suite: str, entry: Any) -> SetBaseline:
        match entry:
            case {"run": str(run), "set_at": str(set_at), "pass_rate": int() | float() as rate}:
                return SetBaseline(run=run, set_at=set_at, pass_rate=float(rate))
        raise self._damaged(f"its entry for {suite!r} lacks run, set_at or pass_rate")

    def _damaged(self, why: str) -> StoreError:
        return StoreError(
            f"{self._file} cannot be used: {why}",
            hint="fix or remove it, then set baselines with: paraval baseline set RUN",
        )

    def _write(self, baselines: Mapping[str, SetBaseline]) -> None:
        """Replace the file by rename, so that readers see either the old or the new one."""
        told = {suite: asdict(baselines[suite]) for suite in sorted(baselines)}
        beside = self._root / f".baselines-{secrets.token_hex(8)}.tmp"
        try:
            with beside.open("x", encoding="utf-8") as file:
                # ASCII, because a name may contain surrogates that no encoding can write.
                file.write(json.dumps(told, indent=2) + "\n")
                file.flush()
                os.fsync(file.fileno())
            beside.replace(self._file)
        except OSError as error:
            raise unusable(self._root, error) from error
        finally:
            beside.unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Guard the read-modify-write cycle, so that no concurrent change is lost."""
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            descriptor = os.open(self._root / LOCK_FILE, flags, 0o644)
        except OSError as error:
            raise unusable(self._root, error) from error
        try:
            self._wait_for(descriptor)
            yield
        finally:
            os.close(descriptor)

    def _wait_for(self, descriptor: int) -> None:
        give_up_at = time.monotonic() + PATIENCE_S
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= give_up_at:
                    raise StoreError(
                        f"{self._file} is being written by another process",
                        hint="try again when that has finished",
                    ) from None
                time.sleep(0.01)
            except OSError as error:
                raise unusable(self._root, error) from error
            else:
                return
