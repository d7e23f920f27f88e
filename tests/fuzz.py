"""`make fuzz`: damaged and hostile files, given to the commands that read files of strangers.

Every file must be read, or refused with a message: none may show a bug, end the process by a
signal, run for long or fill the memory. Of the same seed come the same files. What fails is kept.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.forked import Forks
from tests.test_import_inspect import HEADER, sample

SLOWEST_S = 30.0
MOST_MEMORY = 2 << 30
OUR_FAULT = 70
HOSTILE: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    10**30,
    1e308,
    float("nan"),
    float("inf"),
    "",
    " ",
    "\0",
    "a\ud800",
    "x" * 99999,
    [],
    {},
    [[]],
    {"": None},
    [None],
    "9999-99-99",
    "../../x",
    "{",
    "{x}",
    "{{ x }}",
    "${X}",
    "\x1b[2J",
)
SUITE = {
    "name": "fuzzed",
    "models": {"m": {"provider": "loopback"}},
    "matrix": {"model": ["m"], "a": [1, 2]},
    "cases": [{"id": "a", "input": "b", "expect": "c", "tags": ["t"], "metadata": {"k": 1}}],
    "target": {"chat": {"model": "{model}", "system": "s", "prompt": "{input}"}, "timeout": "3s"},
    "graders": [
        {"contains": "{metadata.k}"},
        {"judge": {"rubric": "good", "model": "m"}},
        "equals",
    ],
    "limits": {"parallel": 2},
    "repeats": 2,
    "fail_under": 0.5,
    "errors": {"timeout": "fail"},
}
PIECES = (
    "{{ input }}",
    "{% for i in range(9999) %}",
    "{% for c in input %}",
    "{% endfor %}",
    "{% if 1 %}",
    "{% endif %}",
    '{{ "a" * 9999999 }}',
    "{{ 9 ** 9999999 }}",
    '{{ "%999999999d" % 1 }}',
    "{{ cases }}",
    "{% set x = [input] * 99999 %}",
    "{{ x|join }}",
    "{{ x.__class__ }}",
    "{% macro m() %}",
    "{{ m() }}",
    "{% endmacro %}",
    '{{ "a"|center(999999999) }}',
    "{{ range(99999)|list }}",
    "{% include 'x' %}",
    '{{ "a".rjust(999999999) }}',
    '{{ "{:>999999999}".format(1) }}',
    "{{ input|indent(99999999) }}",
    '{{ "a".replace("a", input) }}',
    "{{ namespace(a=1) }}",
    "{{ lipsum(9999) }}",
    "{{",
    "%}",
    "text",
)


def main() -> int:
    """Make and try files until the time is over."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=float, default=120)
    options.add_argument("--seed", type=int, default=1)
    given = options.parse_args()
    # Inherited by all that is started from here.
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
    dice = random.Random(given.seed)
    kept = Path(tempfile.mkdtemp(prefix="paraval-fuzz-"))
    forks, began, tried, failed = Forks(), time.monotonic(), 0, 0
    while time.monotonic() - began < given.seconds:
        write = dice.choice((_log, _damaged_log, _suite, _template))
        folder = kept / str(tried)
        folder.mkdir()
        problem = _problem_with(forks, write(folder, dice), folder)
        tried += 1
        if problem is None:
            shutil.rmtree(folder)
        else:
            failed += 1
            print(f"{folder}: {problem}")
    forks.close()
    print(f"{tried:,} files: {failed or 'none'} failed")
    return 1 if failed else 0


def _problem_with(forks: Forks, arguments: tuple[str, ...], folder: Path) -> str | None:
    environment = {**os.environ, "HOME": str(folder), "NO_COLOR": "1"}
    try:
        ended = forks.run(arguments, folder=folder, env=environment, timeout=SLOWEST_S)
    except subprocess.TimeoutExpired:
        return "takes too long"
    assert ended is not None
    if ended.returncode == OUR_FAULT or ended.returncode < 0:
        lines = ended.stderr.strip().splitlines()
        return f"exit code {ended.returncode}: {lines[-2] if len(lines) > 1 else lines}"
    if "check the disk" in ended.stderr:
        return "blames the disk"
    return None


def _log(folder: Path, dice: random.Random) -> tuple[str, ...]:
    """A whole log with odd values in it."""
    (folder / "x.eval").write_bytes(_archive(dice))
    return ("import", "inspect", "x.eval")


def _damaged_log(folder: Path, dice: random.Random) -> tuple[str, ...]:
    content = bytearray(_archive(dice))
    for _ in range(dice.randint(1, 8)):
        content[dice.randrange(len(content))] = dice.randrange(256)
    (folder / "x.eval").write_bytes(content[: dice.choice((len(content), dice.randrange(9999)))])
    return ("import", "inspect", "x.eval")


def _suite(folder: Path, dice: random.Random) -> tuple[str, ...]:
    text = yaml.safe_dump(_mutated(SUITE, dice), allow_unicode=True)
    (folder / "suite.yaml").write_text(text, errors="replace")
    return ("plan",)


def _template(folder: Path, dice: random.Random) -> tuple[str, ...]:
    (folder / "p.j2").write_text("".join(dice.choices(PIECES, k=dice.randint(1, 9))))
    chat = {"model": "m", "prompt": "p.j2"}
    (folder / "suite.yaml").write_text(yaml.safe_dump({**SUITE, "target": {"chat": chat}}))
    return ("plan",)


def _archive(dice: random.Random) -> bytes:
    entries: dict[str, Any] = {"header.json": HEADER, "samples/a.json": sample("a", "C")}
    scored = sample("b", {"x": 1, "y": "I"}, error={"message": "boom"}, limit={"type": "time"})
    entries["samples/b.json"] = scored
    name = dice.choice(list(entries))
    entries[name] = _mutated(entries[name], dice)
    content = io.BytesIO()
    with zipfile.ZipFile(
        content, "w", dice.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    ) as file:
        for name, entry in entries.items():
            file.writestr(name, json.dumps(entry))
    return content.getvalue()


def _mutated(value: Any, dice: random.Random) -> Any:
    """A copy with one to three of its parts replaced, left out or renamed."""
    changed = copy.deepcopy(value)
    for _ in range(dice.randint(1, 3)):
        holder, key = dice.choice(list(_places(changed)) or [({}, "x")])
        do: Callable[[], Any] = dice.choice(
            (
                lambda holder=holder, key=key: holder.__setitem__(key, dice.choice(HOSTILE)),
                lambda holder=holder, key=key: holder.__setitem__(key, [holder[key]] * 3),
                lambda holder=holder, key=key: holder.__delitem__(key),
            )
        )
        do()
    return changed


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


if __name__ == "__main__":
    sys.exit(main())
