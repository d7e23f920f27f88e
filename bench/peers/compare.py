"""paraval and its peers under the same loads, in one table: `make bench-peers`.

Each program runs by itself, in a process and a virtual environment of its own, against a fresh
simulated server. README.md describes the tasks and the settings.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import ours
from loads import (
    QUICK,
    SILENT,
    TOLD,
    Load,
    Seen,
    Server,
    Used,
    empty_folder,
    say_if_busy,
    server,
    used_by,
)

HERE = Path(__file__).parent
LOADS = {"quick": QUICK, "told": TOLD, "silent": SILENT}
OURS = "paraval"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """How one program carried one load: what it used, what the server saw."""

    used: Used
    seen: Seen
    answered: int
    """As the program itself counts: answered, and judged to be right."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another program: its environment, its script, and the script's arguments."""

    venv: str
    script: str
    mode: str

    @property
    def python(self) -> Path:
        return HERE / ".venvs" / self.venv / "bin" / "python"

    @property
    def is_installed(self) -> bool:
        return (self.python.parent.parent / ".installed").exists()

    def carry(self, load: Load, running: Server, folder: Path) -> Carried:
        cases = load.write_cases(folder)
        script = [str(self.python), str(HERE / self.script), running.base_url, str(cases)]
        used = used_by([*script, str(load.parallel), self.mode], folder=folder)
        if used.exit_code != 0:
            raise SystemExit(f"{self.script} failed:\n{(folder / 'stderr').read_text()[-3000:]}")
        answered = json.loads(used.stdout.splitlines()[-1])["answered"]
        return Carried(used=used, seen=running.seen(), answered=answered)


def carry_ours(load: Load, running: Server, folder: Path) -> Carried:
    # Where nothing limits the server, that is said, as to the others; else it has to be found.
    limits = {"concurrent": load.parallel} if load is QUICK else {}
    done = ours.run(load, {"sim": {"base_url": running.base_url, "limits": limits}}, folder=folder)
    return Carried(used=done.used, seen=running.seen(), answered=done.passed)


def carry_bare(load: Load, running: Server, folder: Path) -> Carried:
    cases = load.write_cases(folder)
    script = [sys.executable, str(HERE.parent / "bare.py"), running.base_url, str(cases)]
    used = used_by([*script, str(load.parallel)], folder=folder)
    answered = json.loads(used.stdout)["answered"]
    return Carried(used=used, seen=running.seen(), answered=answered)


PEERS = {
    "inspect-ai, 100 connections": Peer(
        venv="inspect-ai", script="with_inspect_ai.py", mode="fixed"
    ),
    "inspect-ai, adaptive": Peer(venv="inspect-ai", script="with_inspect_ai.py", mode="adaptive"),
    "pydantic-evals, openai": Peer(
        venv="pydantic-evals", script="with_pydantic_evals.py", mode="openai"
    ),
    "pydantic-evals, aiohttp": Peer(
        venv="pydantic-evals", script="with_pydantic_evals.py", mode="aiohttp"
    ),
}
Carry = Callable[[Load, Server, Path], Carried]


def programs(load: Load) -> Iterator[tuple[str, Carry]]:
    yield OURS, carry_ours
    if load is QUICK:
        # It retries nothing, so that a rate limit would only show what is lost without retries.
        yield "bare aiohttp loop", carry_bare
    for name, peer in PEERS.items():
        if peer.is_installed:
            yield name, peer.carry


HEAD = (
    "| load | program | span s | wall s | CPU s | RSS MB | answered | requests | refused | lost "
    "| span x | wall x | CPU x | RSS x |"
)
"""The last four: how many times paraval's."""


def cells(load: Load, done: Carried, reference: Carried) -> list[str]:
    used, seen = done.used, done.seen
    return [
        f"{seen.span_s:.2f}",
        f"{used.wall_s:.2f}",
        f"{used.cpu_s:.2f}",
        f"{used.peak_rss_mb:.0f}",
        str(done.answered),
        str(seen.requests),
        str(seen.refused),
        str(load.count - done.answered),
        f"{seen.span_s / reference.seen.span_s:.2f}",
        f"{used.wall_s / reference.used.wall_s:.2f}",
        f"{used.cpu_s / reference.used.cpu_s:.2f}",
        f"{used.peak_rss_mb / reference.used.peak_rss_mb:.2f}",
    ]


def compare(load: Load) -> None:
    reference: Carried | None = None
    for name, carry in programs(load):
        with empty_folder() as folder, server(load.scenario, folder) as running:
            done = carry(load, running, folder)
        reference = reference or done
        print(f"| {' | '.join([load.name, name, *cells(load, done, reference)])} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loads", nargs="*", choices=[[], *LOADS], help="all by default")
    chosen = parser.parse_args().loads or LOADS
    say_if_busy()
    print(HEAD)
    print("| --- " * HEAD.count(" | ") + "| --- |")
    for load in chosen:
        compare(LOADS[load])
    for name, peer in PEERS.items():
        if not peer.is_installed:
            print(f"\nNOT MEASURED: {name}: its environment could not be made; see above why.")


if __name__ == "__main__":
    main()
