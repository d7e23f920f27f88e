"""Which run each suite is held against: `baselines.json` in the store, for people to read.

A suite has one baseline at most, until another is set. Whether a run will do as one is for those
who set it to say.
"""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paraval.errors import StoreError
from paraval.store.folder import prepare_folder, unusable

BASELINES_FILE = "baselines.json"
LOCK_FILE = "baselines.lock"
PATIENCE_S = 10.0
"""Whoever holds the lock writes one small file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetBaseline:
    """A run that a suite is held against."""

    run: str
    """Its id, or the absolute path of its folder where it is not in this store."""
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
        """In the order of the suites' names; none where nobody has set one."""
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
            raise self._damaged("it is no mapping of suites")
        return {suite: self._entry(suite, told[suite]) for suite in sorted(told)}

    def of(self, suite: str) -> SetBaseline | None:
        return self.all().get(suite)

    def set(self, suite: str, baseline: SetBaseline) -> SetBaseline | None:
        """Gives the one that was set before."""
        prepare_folder(self._root)
        with self._locked():
            known = self.all()
            before = known.get(suite)
            self._write({**known, suite: baseline})
        return before

    def clear(self, suite: str) -> SetBaseline | None:
        """The one that was set; None where there was none."""
        if suite not in self.all():
            return None
        with self._locked():
            known = self.all()
            before = known.pop(suite, None)
            self._write(known)
        return before

    def _entry(self, suite: str, told: Any) -> SetBaseline:
        match told:
            case {"run": str(run), "set_at": str(set_at), "pass_rate": int() | float() as rate}:
                return SetBaseline(run=run, set_at=set_at, pass_rate=float(rate))
        raise self._damaged(f"what it says of {suite!r} has no run, set_at and pass_rate")

    def _damaged(self, why: str) -> StoreError:
        return StoreError(
            f"{self._file} cannot be used: {why}",
            hint="mend it or remove it, then set baselines with: paraval baseline set RUN",
        )

    def _write(self, baselines: Mapping[str, SetBaseline]) -> None:
        """In the place of what was there, by rename: who reads meanwhile sees one or the other."""
        told = {suite: asdict(baselines[suite]) for suite in sorted(baselines)}
        beside = self._root / f".baselines-{secrets.token_hex(8)}.tmp"
        try:
            with beside.open("x", encoding="utf-8") as file:
                # As ASCII: a name may hold what no encoding can carry.
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
        """Guards reading what is set and writing it again, so that no one's word is lost."""
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
                        hint="try again when it has ended",
                    ) from None
                time.sleep(0.01)
            except OSError as error:
                raise unusable(self._root, error) from error
            else:
                return
