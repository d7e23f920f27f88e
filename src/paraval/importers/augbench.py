"""The settings and results of augbench, of both generations: agents on prompts or pull requests.

The first generation (August 2025) has `assistants` and `prompts`; the second has `agents`, shell
commands in `agent_config`, and the files `prompts/*.md`.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from paraval.documents.problems import Location
from paraval.errors import RequestError
from paraval.importers.imported import ImportedSuite, NotHonored, SourceFiles
from paraval.importers.pull_requests import PullRequestOptions, read_pull_requests
from paraval.importers.results import ImportedTrial
from paraval.records import Case, Change, Grade, Outcome, SkippedGrader

_PULL_REQUEST_MODES = ("pr_recreate", "PR_Recreate")
_AGENTS: dict[str, dict[str, Any]] = {
    "Claude Code": {"agent": "claude-code"},
    "Augment CLI": {"agent": "auggie"},
    "Cursor CLI": {"agent": "custom", "command": ["cursor-agent", "-p", "{prompt}"]},
}
_RUBRICS = {
    "output_quality": "Is it correct, complete and clear?",
    "context_adherence": "Does it use the repository's own code and conventions?",
    "completeness": "Are all requirements of the prompt met, edge cases included?",
    "technical_correctness": "Are syntax, APIs and practices correct?",
    "functional_correctness": "Would this code work as intended?",
    "clarity": "Is it readable and well structured?",
    "instruction_adherence": "Were all instructions and constraints followed?",
}
_OF_TEN = (*_RUBRICS, "ast_similarity")
"""Metrics from 1 to 10; here they are from 0 to 1."""
_INNER_KEYS = {
    "LLM_Evaluator": ("generate_prompts", "prompt_topics"),
    "PR_Recreate": ("generate_prompts", "num_prs"),
    "metrics_config": ("agent_success", "output_format"),
}
_NO_EFFECT = {
    "output_filename": "runs are in the store, and reports are written by `paraval report -o`",
    "stage_dir": "paraval has its own worktrees",
    "num_prompts": "all prompts are used",
    "mode": "",
    "agents": "",
    "assistants": "",
    "agent_config": "",
    "prompts": "",
    "num_prs": "",
    "runs_per_prompt": "",
    "parallel_runs": "",
    "parallel_agents": "",
    "repo_path": "",
    "repo_url": "",
    "target_repo_url": "",
    "branch": "",
    "ref": "",
    "metrics": "",
    "metrics_config": "",
    "LLM_Evaluator": "",
    "PR_Recreate": "",
}
"""Known keys; those with a reason have no effect."""


def read_augbench(path: Path, *, folder: Path, repository: Path | None = None) -> ImportedSuite:
    """A suite from a settings file. `folder`: where it will be; `repository`: a clone of the
    settings' repository, if they name a URL."""
    read = SourceFiles()
    settings, spot = read.mapping(path)
    names: Any = settings.get("agents") or settings.get("assistants")
    if not read.problems and not (isinstance(names, list) and names):
        spot.report("needs agents, or assistants: a list of names")
    read.check()
    left_out = [NotHonored(key=key, why=why) for key, why in _left_out(settings)]
    if settings.get("mode") in _PULL_REQUEST_MODES:
        base = _of_pull_requests(settings, folder, repository)
    else:
        base = _of_prompts(path, settings, folder, repository, read, spot)
    graders, files = _graders(settings, path, read, left_out)
    read.check()
    suite = {**base.suite, "name": f"augbench {path.resolve().parent.name}"}
    if any("judge" in grader for grader in graders):
        judge = {"provider": "openai", "model": "gpt-4", "api_key_env": "LLM_API_KEY"}
        suite["models"] = {"judge": judge}
        why = "a judge sees the answer, not the diff; choose its model in `models`"
        left_out.append(NotHonored(key="LLM_PROVIDER, LLM_MODEL", why=why))
    timeout = 600.0 if "agents" in settings else 1200.0
    suite["matrix"] = {"agent": dict(_agents(names, settings, left_out))}
    suite["target"] = {
        "agent": "claude-code",
        "prompt": base.suite.get("target", {}).get("prompt", "{input}"),
        "timeout": timeout,
    }
    suite["repeats"] = settings.get("runs_per_prompt") or 1
    suite["limits"] = {"parallel": _parallel(settings, len(names))}
    suite["graders"] = [*base.suite.get("graders", ()), *graders]
    if not suite["graders"]:
        del suite["graders"]
    return replace(
        base,
        source=f"{path} (augbench)",
        suite=suite,
        files={**base.files, **files},
        not_honored=(*base.not_honored, *left_out),
    )


def _left_out(settings: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in settings:
        if why := _NO_EFFECT.get(key, "unknown"):
            yield key, why
    for mode in ("LLM_Evaluator", "PR_Recreate"):
        if (settings.get(mode) or {}).get("generate_prompts"):
            yield f"{mode}.generate_prompts", "no model writes prompts: edit them in the suite"
    inner = {key: settings.get(key) or {} for key in _INNER_KEYS}
    agents = (settings.get("agent_config") or {}).items()
    inner |= {f"agent_config.{name}": config for name, config in agents}
    for key, mapping in inner.items():
        known = _INNER_KEYS.get(key, ("model", "timeout", "commandTemplate"))
        yield from ((f"{key}.{one}", "unknown") for one in mapping if one not in known)


# ---- cases and their repository


def _of_prompts(
    path: Path,
    settings: Mapping[str, Any],
    folder: Path,
    repository: Path | None,
    read: SourceFiles,
    spot: Location,
) -> ImportedSuite:
    files: dict[str, str | bytes] = {}
    named = settings.get("prompts")
    listed = [path.parent / one for one in named or ()]
    for number, file in enumerate(listed or sorted((path.parent / "prompts").glob("*.md"))):
        if not file.is_file():
            spot.at("prompts", number).report(f"no such file: {file}")
        files[f"prompts/{file.stem}.md"] = read.text(file) if file.is_file() else ""
    topics = (settings.get("LLM_Evaluator") or {}).get("prompt_topics") or ()
    if not files:
        files = {f"prompts/prompt{n}.md": f"{one}\n" for n, one in enumerate(topics, start=1)}
    if not files:
        spot.at("prompts").report("no prompts: neither listed, nor in the folder prompts")
    place, notes = _place(path, settings, folder, repository)
    ref = settings.get("ref") or settings.get("branch")
    workspace = {"git": place, **({"ref": ref} if ref else {})} if place else {"folder": True}
    suite = {"name": "", "cases": "prompts/*.md", "workspace": workspace}
    return ImportedSuite(source="", suite=suite, files=files, notes=notes)


def _place(
    path: Path, settings: Mapping[str, Any], folder: Path, repository: Path | None
) -> tuple[str | None, tuple[str, ...]]:
    """The repository, relative to the suite; None: there is none."""
    if repository is not None:
        return os.path.relpath(repository, folder), ()
    if settings.get("repo_path"):
        return os.path.relpath(path.parent / settings["repo_path"], folder), ()
    if url := settings.get("repo_url"):
        clone = shlex.join(["git", "clone", str(url), str(folder / "repo")])
        return "repo", (f"Before the first run: {clone}",)
    return None, ()


def _of_pull_requests(
    settings: Mapping[str, Any], folder: Path, repository: Path | None
) -> ImportedSuite:
    url = settings.get("target_repo_url") or settings.get("repo_url")
    source = repository or (Path(str(url)) if url and Path(str(url)).is_dir() else None)
    if source is None:
        raise RequestError(
            "these settings recreate pull requests, which are read from a clone",
            hint=f"git clone {url or 'URL'} repo, then add --repo repo",
        )
    number = settings.get("num_prs") or (settings.get("PR_Recreate") or {}).get("num_prs") or 5
    branch = settings.get("ref") or settings.get("branch") or "HEAD"
    asked = PullRequestOptions(last=number, branch=branch)
    return read_pull_requests(source, folder=folder, asked=asked)


# ---- agents


def _agents(
    names: list[str], settings: Mapping[str, Any], left_out: list[NotHonored]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The axis `agent`: each name with its target keys."""
    for name in names:
        config = (settings.get("agent_config") or {}).get(name) or {}
        keys = dict(_AGENTS.get(name, {"agent": "custom", "command": [name, "{prompt}"]}))
        if template := config.get("commandTemplate"):
            keys = {"agent": "custom", "command": _shell(template), "stdin": "{prompt}"}
        elif name not in _AGENTS:
            why = f"no commandTemplate: write the command of {name} into the suite"
            left_out.append(NotHonored(key=f"agents: {name}", why=why))
        if config.get("model") and keys["agent"] != "custom":
            keys["model"] = config["model"]
        elif config.get("model"):
            why = "the commandTemplate decides"
            left_out.append(NotHonored(key=f"agent_config.{name}.model", why=why))
        if config.get("timeout"):
            keys["timeout"] = config["timeout"] / 1000
        yield name, keys


def _shell(template: str) -> list[str]:
    """A shell command that has the prompt in a file, as augbench's have."""
    script = template
    for field, variable in (("prompt", "prompt"), ("cwd", "PWD"), ("runs_dir", "TMPDIR")):
        script = script.replace(f'"{{{field}}}"', f'"${variable}"')
        script = script.replace(f"{{{field}}}", f'"${variable}"')
    script = script.replace("{", "{{").replace("}", "}}")
    return ["sh", "-c", f'prompt=$(mktemp) && cat > "$prompt" && {script}']


def _parallel(settings: Mapping[str, Any], agents: int) -> int:
    """How many attempts ran at once."""
    is_first = "assistants" in settings
    together = settings.get("parallel_agents", is_first) in (True, "true")
    runs = settings.get("parallel_runs" if is_first else "runs_per_prompt") or 1
    return max(1, (agents if together else 1) * (runs if is_first or together else 1))


# ---- metrics


def _graders(
    settings: Mapping[str, Any], path: Path, read: SourceFiles, left_out: list[NotHonored]
) -> tuple[list[dict[str, Any]], dict[str, str | bytes]]:
    config = settings.get("metrics_config") or {}
    success, shape = config.get("agent_success") or {}, config.get("output_format") or {}
    graders: list[dict[str, Any]] = []
    files: dict[str, str | bytes] = {}
    for metric in settings.get("metrics") or ():
        name = "functional_correctness" if metric == "logical_correctness" else metric
        if name in _RUBRICS:
            counts = name == "output_quality" and success.get("mode", "quality") == "quality"
            least = success.get("threshold", 7) / 10 if counts else 0
            judge = {"name": name, "model": "judge", "rubric": _RUBRICS[name], "pass_at": least}
            graders.append({"judge": judge})
        elif name == "output_format_success" and "regex" in shape:
            graders.append({"regex": {"name": name, "pattern": shape["regex"]}})
        elif name == "output_format_success" and "json_schema_path" in shape:
            schema = path.parent / shape["json_schema_path"]
            files[schema.name] = read.text(schema)
            graders.append({"json": {"name": name, "schema": schema.name}})
        elif name not in ("response_time", "diff_metrics"):
            left_out.append(NotHonored(key=f"metrics: {metric}", why=_why_not(name, settings)))
    return graders, files


def _why_not(metric: str, settings: Mapping[str, Any]) -> str:
    if metric == "ast_similarity" and settings.get("mode") in _PULL_REQUEST_MODES:
        return "instead, `similarity` compares the changed lines with those of the pull request"
    return {
        "ast_similarity": "there is no merged change to compare with",
        "output_format_success": "metrics_config has no output_format",
        "steps_per_task": "the turns and tool calls that agents report are recorded instead",
    }.get(metric, "unknown")


# ---- results


def read_results(path: Path, imported: ImportedSuite) -> tuple[list[ImportedTrial], float | None]:
    """The runs in a results file of either generation, and its time."""
    read = SourceFiles()
    data, spot = read.mapping(path)
    results = data.get("results")
    if not read.problems and not isinstance(results, list):
        spot.report("has no list of results")
    read.check()
    least = {
        options["name"]: float(options.get("pass_at", 1))
        for grader in imported.suite.get("graders", ())
        for options in grader.values()
    }
    trials = []
    for number, one in enumerate(results or ()):
        agent = one.get("agent") or one.get("assistant") if isinstance(one, dict) else None
        if not isinstance(agent, str) or not isinstance(one.get("prompt"), str):
            spot.at("results", number).report("needs prompt, and agent or assistant")
            continue
        case = _case_of(one["prompt"], imported)
        trials += [_trial(run, case, agent, least) for run in one.get("runs") or ()]
    read.check()
    try:
        when = datetime.fromisoformat(str((data.get("metadata") or {}).get("timestamp")))
    except ValueError:
        return trials, None
    return trials, when.timestamp()


def _case_of(prompt: str, imported: ImportedSuite) -> Case:
    """The suite's case of a prompt: `prompt1.md`, or `pr_<order>_<number>`."""
    name = PurePosixPath(prompt).stem
    if name.startswith("pr_") and name.rpartition("_")[2].isdigit():
        return Case(id=f"pr-{name.rpartition('_')[2]}")
    text = imported.files.get(f"prompts/{name}.md")
    return Case(id=name, input=None if text is None else str(text).strip())


def _trial(
    run: Mapping[str, Any], case: Case, agent: str, least: Mapping[str, float]
) -> ImportedTrial:
    scores = {
        name: max(0.0, min(1.0, run[name] / (10 if name in _OF_TEN else 1)))
        for name in (*_OF_TEN, "output_format_success")
        if isinstance(run.get(name), int | float)
    }
    grades = tuple(
        Grade(grader=name, score=score, passed=score >= least.get(name, 0))
        for name, score in scores.items()
    )
    unknown = [name for name in least if name in run and run[name] is None]
    error = run.get("error")
    outcome = Outcome.PASSED if all(grade.passed for grade in grades) else Outcome.FAILED
    if error:
        is_late = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        outcome = Outcome.TIMEOUT if is_late else Outcome.CRASHED
    return ImportedTrial(
        case=case,
        variant={"agent": agent},
        outcome=outcome,
        grades=() if error else grades,
        error=str(error) if error else None,
        duration_s=run.get("response_time") or 0.0,
        change=_change(run),
        notes=tuple(str(SkippedGrader(grader=name, reason="no score")) for name in unknown),
    )


def _change(run: Mapping[str, Any]) -> Change | None:
    """The counts of a diff: in a mapping of their own, or beside the other metrics."""
    counts = run.get("diff_metrics") or run
    if "files_added" not in counts:
        return None
    return Change(
        files_added=counts.get("files_added") or 0,
        files_changed=counts.get("files_modified") or 0,
        files_deleted=counts.get("files_deleted") or 0,
        lines_added=counts.get("lines_added") or 0,
        lines_deleted=counts.get("lines_deleted") or 0,
    )
