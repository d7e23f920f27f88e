"""Trial keys: everything that decides a trial's result, and nothing else; and digests of a suite's
parts.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from paraval.models.messages import MessageError, image_digests
from paraval.models.requests import settings_words
from paraval.plan.registry import Registry
from paraval.plan.suite import Definition
from paraval.records import (
    AgentTarget,
    Case,
    ChatTarget,
    CommandTarget,
    GraderSpec,
    Grading,
    HiddenFiles,
    Model,
    Provider,
    Target,
    Variant,
    Workspace,
    WorkspaceKind,
)
from paraval.settings import JUDGE_PROMPT_VERSION

DIGEST_BYTES = 16
NO_MATTER = frozenset(
    (
        "timeout",
        "grace",
        "folder",
        "any_exit_code",
        "home",
        "limits",
        "fails_on",
        "account",
        "program",
        "retries",
    )
)
"""Target keys that decide how long an attempt may take, what it may use, where things are and how
errors count, but not the answer."""


def trial_key(words: bytes) -> str:
    return hashlib.blake2b(words, digest_size=DIGEST_BYTES).hexdigest()


def case_words(case: Case, folder: str = "") -> bytes:
    """Return a case's part of the keys: the case itself if short, otherwise a digest.

    `folder`: where the images in its messages are.
    """
    if type(case.input) is str and type(case.expect) is str and not case.metadata:
        # There may be very many cases, and plain texts need no encoder.
        words = repr((case.id, case.input, case.expect)).encode()
        if len(words) < 200:
            return words
        return hashlib.blake2b(words, digest_size=DIGEST_BYTES).digest()
    parts = [case.id, case.input, case.expect, case.metadata]
    if type(case.input) is list and (images := _images_in(case.input, folder)):
        parts.append(images)
    return digest_of(parts)


def _images_in(messages: list[Any], folder: str) -> list[str]:
    """Only chat targets send images; for others they were not checked, and are just names."""
    try:
        return image_digests(messages, folder)
    except MessageError:
        return []


def variant_words(variant: Variant, target: Target, folder: str, registry: Registry) -> bytes:
    """Return a variant's part of the key, with its target."""
    return digest_of([dict(variant), target_words(target, folder, registry)])


def target_words(target: Target, folder: str, registry: Registry) -> dict[str, Any]:
    """Return what decides a target's answers. Not time limits or the suite's folder: a moved
    checkout keeps its keys."""
    match target:
        case ChatTarget():
            words = _chat_words(target, registry)
        case AgentTarget():
            words = _agent_words(target, registry)
        case _:
            words = {name: value for name, value in asdict(target).items() if name not in NO_MATTER}
    if isinstance(target, CommandTarget):
        is_absolute = os.path.isabs(target.cwd)  # noqa: PTH117 - text
        words["cwd"] = os.path.relpath(target.cwd, folder) if is_absolute else target.cwd
    return {"kind": type(target).__name__, **words}


def workspace_words(workspace: Workspace) -> bytes:
    """Return a workspace's part of the key: what attempts find there, not its path or name. Empty
    without a workspace."""
    if workspace.kind is WorkspaceKind.NONE:
        return b""
    words: list[Any] = [
        workspace.kind,
        workspace.tree,
        workspace.start,
        workspace.setup,
        workspace.sandbox,
    ]
    if (box := workspace.container) is not None:
        words.append([box.image, box.tree, box.network, box.cpus, box.memory, box.path])
    return digest_of(words)


def hidden_words(hidden: Sequence[HiddenFiles]) -> bytes:
    """Return the hidden files' part of the key; empty if there are none."""
    if not hidden:
        return b""
    return digest_of([[one.to, one.is_patch, one.digest] for one in hidden])


def grading_words(grading: Grading, registry: Registry) -> bytes:
    """Return the graders' part of the key; `by_case` only if there are such cases."""
    graders = [_grader_words(spec, registry) for spec in grading.graders]
    words: list[Any] = [graders, grading.pass_at]
    if grading.by_case:
        words.append(
            {
                case: [_grader_words(spec, registry) for spec in specs]
                for case, specs in grading.by_case.items()
            }
        )
    return digest_of(words)


def _grader_words(spec: GraderSpec, registry: Registry) -> list[Any]:
    name = spec.key_name or spec.name
    words: list[Any] = [name, spec.kind, spec.options, spec.weight]
    if spec.parts:
        words.append([_grader_words(part, registry) for part in spec.parts])
    if spec.model is None:
        return words
    decisive = {name: value for name, value in spec.options.items() if name != "timeout"}
    judge = _model_words(spec.model, registry)
    return [name, spec.kind, decisive, spec.weight, judge, JUDGE_PROMPT_VERSION]


def _agent_words(target: AgentTarget, registry: Registry) -> dict[str, Any]:
    words = {name: value for name, value in asdict(target).items() if name not in NO_MATTER}
    # The user's home brings their settings and tools.
    words["home"] = target.home
    if target.program:
        words["program"] = [os.path.basename(word) for word in target.program]  # noqa: PTH119 - text
    if target.model is not None:
        words["model"] = _model_words(target.model, registry)
    return words


def _chat_words(target: ChatTarget, registry: Registry) -> dict[str, Any]:
    words: dict[str, Any] = {
        "model": _model_words(target.model, registry),
        "messages": [(message.role, message.content) for message in target.messages],
        "temperature": target.temperature,
        "max_tokens": target.max_tokens,
    }
    words |= settings_words(target.settings)
    if target.runs_tools:
        words["functions"] = [tool.python for tool in target.settings.tools]
        words["max_turns"] = target.max_turns
    return words


def _model_words(model: Model, registry: Registry) -> list[Any]:
    """Return what decides a model's answers: never its account, key, limits, price or timeouts."""
    is_simulated = model.provider is Provider.LOOPBACK
    place = registry.identities.get(model.name) if is_simulated else model.base_url
    return [model.provider, place, model.model, model.options]


def _mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_mapping)


def digest_of(words: Any) -> bytes:
    encoded = _canonical.encode(words).encode()
    return hashlib.blake2b(encoded, digest_size=DIGEST_BYTES).digest()


# Digests of a suite's parts, so that two runs can show what changed between them.

_PROMPT_KEYS = ("messages", "prompt", "system", "command", "stdin", "reference")
"""Target keys that form the prompt: a chat's messages, an agent's prompt, a command line, a
function's name."""
_ASKED = ("model", "model_name")
"""Target keys that name the model or agent."""


def parts_of(
    definition: Definition, workspaces: bytes, cases: Iterable[bytes], hidden: bytes = b""
) -> dict[str, str]:
    """Return a digest of each part of a suite.

    `workspaces`, `cases`, `hidden`: their parts of the keys. Two parts are plain numbers, which are
    more useful than digests.
    """
    prompt, asked, other = _of_targets(definition)
    axes = [[axis.name, axis.texts()] for axis in definition.axes]
    return {
        "cases": _of_cases(cases),
        "case_count": str(len(definition.cases)),
        "prompt": prompt,
        "models": asked,
        "target": other,
        "graders": grading_words(definition.grading, definition.offer.registry).hex(),
        "hidden": hidden.hex(),
        "workspace": workspaces.hex(),
        "matrix": digest_of([axes, len(definition.variants)]).hex(),
        "repeats": str(definition.repeats),
    }


def _of_cases(cases: Iterable[bytes]) -> str:
    """Independent of their order, which decides nothing."""
    return hashlib.blake2b(b"\n".join(sorted(cases)), digest_size=DIGEST_BYTES).hexdigest()


def _of_targets(definition: Definition) -> tuple[str, str, str]:
    """Return digests of prompt, model and the rest, over all targets of the variants."""
    targets = {id(target): target for _, target in definition.variants}
    parts: tuple[set[bytes], set[bytes], set[bytes]] = (set(), set(), set())
    for target in targets.values():
        words = target_words(target, definition.folder, definition.offer.registry)
        for part, own in zip(parts, _split(words), strict=True):
            part.add(digest_of(own))
    prompt, asked, other = (digest_of(sorted(one.hex() for one in part)).hex() for part in parts)
    return prompt, asked, other


def _split(words: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    prompt = {name: words[name] for name in _PROMPT_KEYS if name in words}
    asked = {name: words[name] for name in _ASKED if name in words}
    return (
        prompt,
        asked,
        {name: words[name] for name in words if name not in prompt and name not in asked},
    )
