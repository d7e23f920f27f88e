"""The flags of a race: each declared once, with the key of a race file whose place it takes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from paraval.errors import RequestError
from paraval.racing.race_file import load_race, race_of_flags
from paraval.racing.race_words import Laid
from paraval.racing.request import RaceRequest
from paraval.racing.whereabouts import path_of

FILE_ENDINGS = (".yaml", ".yml", ".toml", ".json")
Steps = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RaceFlag:
    """A flag, and where in a race what it says belongs."""

    name: str
    places: tuple[Steps, ...]
    help: str
    short: tuple[str, ...] = ()
    """Other names of it."""
    metavar: str | None = None
    kind: Any = str
    """`bool`: it stands alone. `list`: it may be given several times."""
    read: Callable[[Any], Any] = lambda value: value

    @property
    def variable(self) -> str:
        return self.name.removeprefix("--").replace("-", "_")

    def option(self) -> Callable[[Any], Any]:
        names = (self.variable, self.name, *self.short)
        if self.kind is bool:
            return click.option(*names, is_flag=True, help=self.help)
        return click.option(
            *names,
            multiple=self.kind is list,
            type=str if self.kind is list else self.kind,
            metavar=self.metavar,
            help=self.help,
        )

    def laid(self, given: Any) -> Iterator[Laid]:
        """What it says, if it is given."""
        if given is None or given is False or given == ():
            return
        value = self.read(list(given) if self.kind is list else given)
        for steps in self.places:
            yield Laid(flag=self.name, steps=steps, value=value)


def _number_or_text(text: str) -> Any:
    try:
        return int(text)
    except ValueError:
        return text


def _from_here(path: str) -> str:
    return os.path.normpath(Path.cwd() / path) if "\0" not in path else path


FLAGS = (
    RaceFlag(
        name="--repo",
        places=(("repo", "git"),),
        metavar="FOLDER",
        help="The git repository that candidates are changes to. [default: .]",
        read=_from_here,
    ),
    RaceFlag(
        name="--ref",
        places=(("repo", "ref"),),
        metavar="REF",
        help="The commit to begin with. [default: HEAD]",
    ),
    RaceFlag(
        name="--uncommitted",
        places=(("repo", "uncommitted"),),
        kind=bool,
        help="Begin with the working tree as it is.",
    ),
    RaceFlag(
        name="--test",
        places=(("test", "command"),),
        metavar="COMMAND",
        help="Ends with exit code 0 if a candidate is right.",
    ),
    RaceFlag(
        name="--compare",
        places=(("compare",),),
        metavar="stdout|FILE",
        kind=list,
        help="What of the tests must be as it is with the baseline; several times for several.",
    ),
    RaceFlag(
        name="--bench",
        places=(("bench", "command"),),
        metavar="COMMAND",
        help="What is measured.",
    ),
    RaceFlag(
        name="--metric",
        places=(("bench", "metric"),),
        metavar="wall|cpu|FILE",
        help="What of it counts: time by the clock, of the CPUs, or seconds in a JSON file that it "
        "writes. [default: wall]",
    ),
    RaceFlag(
        name="--timeout",
        places=(("test", "timeout"), ("bench", "timeout")),
        metavar="SECONDS",
        kind=float,
        help="For each run of the tests and of the benchmark. [default: 600]",
    ),
    RaceFlag(
        name="--setup",
        places=(("setup",),),
        metavar="COMMAND",
        help="Makes a worktree ready, once in each.",
    ),
    RaceFlag(
        name="--sandbox",
        places=(("sandbox",),),
        kind=bool,
        help="Let candidates write nowhere but in their worktree. Needs bubblewrap.",
    ),
    RaceFlag(
        name="--generate",
        places=(("generate", "command"),),
        metavar="COMMAND",
        help="Prints candidates as JSON lines.",
    ),
    RaceFlag(
        name="--repair",
        places=(("repair", "command"),),
        metavar="COMMAND",
        help="Is told of a candidate that failed, as JSON; prints others.",
    ),
    RaceFlag(
        name="--refine",
        places=(("refine", "command"),),
        metavar="COMMAND",
        help="Is told of a right one with its speed; prints others.",
    ),
    RaceFlag(
        name="--profile",
        places=(("profile", "kind"),),
        metavar="line|none",
        help="Time the winner's lines.",
    ),
    RaceFlag(
        name="--function",
        places=(("profile", "functions"),),
        metavar="MODULE:FUNCTION",
        kind=list,
        help="What of it to time; several times for several. [default: all that it changed]",
    ),
    RaceFlag(
        name="--speedup",
        short=("--accept-speedup",),
        places=(("accept", "speedup"),),
        metavar="TIMES",
        kind=float,
        help="How many times as fast a winner must be shown to be. [default: 1.05]",
    ),
    RaceFlag(
        name="--confidence",
        places=(("accept", "confidence"),),
        metavar="SHARE",
        kind=float,
        help="With how much confidence. [default: 0.95]",
    ),
    RaceFlag(
        name="--parallel",
        short=("-j",),
        places=(("limits", "parallel"),),
        metavar="N|auto",
        help="How many candidates are tested at once; measured they are alone. [default: auto]",
        read=_number_or_text,
    ),
    RaceFlag(
        name="--max-candidates",
        places=(("limits", "candidates"),),
        metavar="N",
        kind=int,
        help="How many there may be in all. [default: 200]",
    ),
    RaceFlag(
        name="--seconds",
        places=(("limits", "seconds"),),
        metavar="SECONDS",
        kind=float,
        help="After this nothing new starts.",
    ),
    RaceFlag(
        name="--budget",
        places=(("limits", "usd"),),
        metavar="USD",
        kind=float,
        help="What generate, repair and refine may cost together.",
    ),
)


def race_flags(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that say what is raced, and how."""
    for flag in reversed(FLAGS):
        command = flag.option()(command)
    return command


def flags_given(given: Mapping[str, Any]) -> list[str]:
    """Those that say something."""
    return [flag.name for flag in FLAGS if any(flag.laid(given[flag.variable]))]


def request_from(named: Sequence[str], given: Mapping[str, Any]) -> RaceRequest:
    """The race of a file and candidates as named, with the flags laid over it."""
    laid = [one for flag in FLAGS for one in flag.laid(given[flag.variable])]
    laid += _instead(given)
    has_file = bool(named) and named[0].lower().endswith(FILE_ENDINGS)
    if not has_file:
        _require(given, "test", "bench")
    candidates = [_candidate(text) for text in named[has_file:]]
    if candidates:
        laid.append(Laid(flag="CANDIDATE", steps=("candidates",), value=candidates))
    return load_race(Path(named[0]), laid) if has_file else race_of_flags(laid)


def _require(given: Mapping[str, Any], *names: str) -> None:
    missing = [f"--{name}" for name in names if given[name] is None]
    if missing:
        raise RequestError(
            "a race needs a way to test candidates, and one to measure them:"
            f" {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing",
            hint="or name a race file that has them; `paraval race --help` shows examples",
        )


def _instead(given: Mapping[str, Any]) -> Iterator[Laid]:
    """What a file says that a flag rules out."""
    if given["ref"] is not None and not given["uncommitted"]:
        yield Laid(flag="--ref", steps=("repo", "uncommitted"), value=False)
    if given["uncommitted"] and given["ref"] is None:
        yield Laid(flag="--uncommitted", steps=("repo", "ref"), value=None)
    if given["function"] and given["profile"] is None:
        yield Laid(flag="--function", steps=("profile", "kind"), value="line")


def _candidate(text: str) -> str:
    """Paths are from here, wherever the race file is; what is no path may be a ref."""
    return path_of(text, Path.cwd()) or text
