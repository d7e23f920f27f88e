"""paraval and its peers under the same loads, in one table: `make bench-peers`.

Each program runs by itself, in a process and an environment of its own, against a fresh simulated
server. README.md describes the tasks and the settings.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
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
ENVIRONMENTS = HERE / ".venvs"
START = Load(name="one case", count=1, parallel=100, scenario={"latency": 0})
LOADS = {"start": START, "quick": QUICK, "told": TOLD, "silent": SILENT}
LEFT_OUT = {
    ("deepeval", "told"): "its own speed is below the 50 requests a second that the server allows",
    ("deepeval", "silent"): "the same",
}
MOST_CASES = {"deepeval": 200}
"""Its CPU per case grows with the number of cases: 1,000 take minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """How one program carried one load: what it used, what the server saw."""

    load: Load
    used: Used
    seen: Seen
    answered: int
    """As the program itself counts: answered, and judged to be correct."""

    def cells(self, reference: Carried) -> list[str]:
        """Of one row; the last four are how many times paraval's."""
        span_s, used, others = self.seen.span_s, self.used, reference.used
        ratios = ["–"] * 4
        if self.load.count == reference.load.count:
            ratios = [
                f"{span_s / reference.seen.span_s:.2f}" if self.load.count > 1 else "–",
                f"{used.wall_s / others.wall_s:.2f}",
                f"{used.cpu_s / others.cpu_s:.2f}",
                f"{used.peak_rss_mb / others.peak_rss_mb:.2f}",
            ]
        return [
            f"{span_s:.2f}" if self.load.count > 1 else "–",
            f"{used.wall_s:.2f}",
            f"{used.cpu_s:.2f}",
            f"{used.peak_rss_mb:.0f}",
            str(self.seen.refused),
            str(self.load.count - self.answered),
            *ratios,
        ]


HEAD = (
    "| load | program | span s | wall s | CPU s | RSS MB | refused | lost "
    "| span × | wall × | CPU × | RSS × |"
)
Carry = Callable[[Load, Server, Path], Carried]


def carry_ours(load: Load, running: Server, folder: Path) -> Carried:
    # Where nothing limits the server, the registry says so, as for the others; else paraval finds
    # the limit.
    limits = {} if "limits" in load.scenario else {"concurrent": load.parallel}
    done = ours.run(load, {"sim": {"base_url": running.base_url, "limits": limits}}, folder=folder)
    return Carried(load=load, used=done.used, seen=running.seen(), answered=done.passed)


def carry_by(
    command: list[str], load: Load, running: Server, folder: Path, env: Mapping[str, str]
) -> Carried:
    used = used_by(command, folder=folder, env=env)
    passed = re.findall(r'(?<="answered": )\d+|[\d,]+(?= passed)', used.stdout)
    if not passed:
        talk = used.stdout + (folder / "stderr").read_text()
        raise SystemExit(f"{' '.join(command)} failed:\n{talk[-3000:]}")
    answered = int(passed[-1].replace(",", ""))
    return Carried(load=load, used=used, seen=running.seen(), answered=answered)


def carry_by_script(python: Path | str, script: Path, *modes: str) -> Carry:
    """`SCRIPT BASE_URL CASES PARALLEL [MODE]`, which prints how many were answered."""

    def carry(load: Load, running: Server, folder: Path) -> Carried:
        cases = str(load.write_cases(folder))
        command = [str(python), str(script), running.base_url, cases, str(load.parallel), *modes]
        return carry_by(command, load, running, folder, {})

    return carry


def carry_by_promptfoo(load: Load, running: Server, folder: Path) -> Carried:
    """Its own command, with a configuration of the same cases. Nothing is sent elsewhere."""
    cases = map(json.loads, load.write_cases(folder).read_text().splitlines())
    provider = {
        "id": "openai:chat:sim",
        "config": {"apiBaseUrl": running.base_url, "apiKey": "none"},
    }
    config = {
        "prompts": ["{{input}}"],
        "providers": [provider],
        "tests": [
            {
                "vars": {"input": case["input"]},
                "assert": [{"type": "contains", "value": case["expect"]}],
            }
            for case in cases
        ],
    }
    (folder / "promptfooconfig.json").write_text(json.dumps(config))
    programs = ENVIRONMENTS / "promptfoo" / "node_modules" / ".bin"
    command = [str(programs / "node"), str(programs / "promptfoo"), "eval", "--no-cache"]
    env = {
        "PROMPTFOO_DISABLE_TELEMETRY": "1",
        "PROMPTFOO_DISABLE_UPDATE": "1",
        "PROMPTFOO_CONFIG_DIR": str(folder / "promptfoo"),
    }
    flags = ["-c", "promptfooconfig.json", "-j", str(load.parallel)]
    return carry_by([*command, *flags], load, running, folder, env)


def peer(name: str, *modes: str) -> Carry:
    script = HERE / f"with_{name.replace('-', '_')}.py"
    return carry_by_script(ENVIRONMENTS / name / "bin" / "python", script, *modes)


PEERS: dict[str, dict[str, Carry]] = {
    "inspect-ai": {
        "inspect-ai, 100 connections": peer("inspect-ai", "fixed"),
        "inspect-ai, adaptive": peer("inspect-ai", "adaptive"),
    },
    "pydantic-evals": {
        "pydantic-evals, openai": peer("pydantic-evals", "openai"),
        "pydantic-evals, aiohttp": peer("pydantic-evals", "aiohttp"),
    },
    "promptfoo": {"promptfoo": carry_by_promptfoo},
    "braintrust": {"braintrust, openai": peer("braintrust")},
    "deepeval": {"deepeval, openai": peer("deepeval")},
}
"""By environment, the programs that run in it."""


def is_installed(environment: str) -> bool:
    return (ENVIRONMENTS / environment / ".installed").exists()


def programs(chosen: str, peers: Collection[str]) -> Iterator[tuple[str, Load, Carry]]:
    load = LOADS[chosen]
    yield "**paraval**", load, carry_ours
    if "limits" not in load.scenario:
        # It retries nothing, so that a rate limit would only show what is lost without retries.
        yield "bare aiohttp loop", load, carry_by_script(sys.executable, HERE.parent / "bare.py")
    for environment in peers:
        if is_installed(environment) and (environment, chosen) not in LEFT_OUT:
            count = min(load.count, MOST_CASES.get(environment, load.count))
            fewer = f" ({count} cases)" if count < load.count else ""
            for name, carry in PEERS[environment].items():
                yield name + fewer, replace(load, count=count), carry


def compare(chosen: str, peers: Collection[str]) -> None:
    reference: Carried | None = None
    title = LOADS[chosen].name
    for name, load, carry in programs(chosen, peers):
        tries = []
        for _ in range(3 if chosen == "start" else 1):
            with empty_folder() as folder, server(load.scenario, folder) as running:
                tries.append(carry(load, running, folder))
        done = min(tries, key=lambda one: one.used.wall_s)
        reference = reference or done
        print(f"| {' | '.join([title, name, *done.cells(reference)])} |", flush=True)
        title = ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("loads", nargs="*", choices=[[], *LOADS], help="all by default")
    parser.add_argument("--peer", action="append", choices=PEERS, help="all by default")
    given = parser.parse_args()
    chosen, peers = given.loads or LOADS, given.peer or PEERS
    say_if_busy()
    versions = {name: (HERE / f"{name}.txt").read_text().split() for name in peers}
    print("; ".join(", ".join(pins) for pins in versions.values()), end="\n\n")
    print(HEAD)
    print("| --- " * HEAD.count(" | ") + "| --- |")
    for load in chosen:
        compare(load, peers)
    for environment in peers:
        if not is_installed(environment):
            print(f"\nNOT MEASURED: {environment}: it could not be installed; see above why.")
    for (environment, load), reason in LEFT_OUT.items():
        if load in chosen and environment in peers:
            print(f"\nNOT MEASURED: {environment}, {LOADS[load].name}: {reason}.")


if __name__ == "__main__":
    main()
