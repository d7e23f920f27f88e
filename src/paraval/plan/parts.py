"""What a suite is made of, by part, each as a digest: so that two runs of it can tell what changed
between them.

The parts are of the suite as it is written: filters change what runs, and not the suite. They are
made of the words that decide the keys of trials, so that what decides no result is no change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

from paraval.isolation import Workspace
from paraval.plan.suite import Definition
from paraval.plan.trial_keys import (
    DIGEST_BYTES,
    digest_of,
    grading_words,
    target_words,
    workspace_words,
)

_SAID = ("messages", "prompt", "system", "command", "stdin", "reference")
"""What of a target's words it is asked with: a chat's messages, an agent's prompt, a command's
line, a function's name."""
_ASKED = ("model", "model_name")
"""Who is asked."""


def parts_of(
    definition: Definition, workspace: Workspace, cases: Iterable[bytes]
) -> dict[str, str]:
    """`cases`: what each case of the suite adds to the keys of its trials.

    Two parts are numbers, which say more than a digest of them would.
    """
    said, asked, other = _of_targets(definition)
    axes = [[axis.name, axis.texts()] for axis in definition.axes]
    return {
        "cases": _of_cases(cases),
        "case_count": str(len(definition.cases)),
        "prompt": said,
        "models": asked,
        "target": other,
        "graders": grading_words(definition.grading, definition.offer.registry).hex(),
        "workspace": workspace_words(workspace).hex(),
        "matrix": digest_of([axes, len(definition.variants)]).hex(),
        "repeats": str(definition.repeats),
    }


def _of_cases(cases: Iterable[bytes]) -> str:
    """In whatever order they are written: that decides nothing."""
    return hashlib.blake2b(b"\n".join(sorted(cases)), digest_size=DIGEST_BYTES).hexdigest()


def _of_targets(definition: Definition) -> tuple[str, str, str]:
    """What is said, who is asked, and the rest of it, over all targets of the variants."""
    targets = {id(target): target for _, target in definition.variants}
    parts: tuple[set[bytes], set[bytes], set[bytes]] = (set(), set(), set())
    for target in targets.values():
        words = target_words(target, definition.folder, definition.offer.registry)
        for part, own in zip(parts, _split(words), strict=True):
            part.add(digest_of(own))
    said, asked, other = (digest_of(sorted(one.hex() for one in part)).hex() for part in parts)
    return said, asked, other


def _split(words: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    said = {name: words[name] for name in _SAID if name in words}
    asked = {name: words[name] for name in _ASKED if name in words}
    return (
        said,
        asked,
        {name: words[name] for name in words if name not in said and name not in asked},
    )
