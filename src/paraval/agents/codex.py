"""Codex: how to start it. What it prints is read by `codex_stream`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from paraval.agents.codex_servers import codex_servers, quoted, table
from paraval.agents.codex_stream import read_stream
from paraval.agents.program import Endpoint, Job, Launch, Login, Reading, Transcript
from paraval.records import Provider

KEY_VARIABLE = "CODEX_API_KEY"
"""What it reads a key from; OPENAI_API_KEY it does not look at (see `keys`)."""
ENDPOINT_KEY_VARIABLE = "PARAVAL_MODEL_KEY"
RETRIES = 1
"""Of its own: waiting for a rate limit is the scheduler's, which knows of the other attempts."""
_UNKNOWN_MODEL = "Model metadata for"


class Codex:
    name = "codex"
    programs: tuple[str, ...] = ("codex",)
    version_arguments: tuple[str, ...] = ("--version",)
    login = Login(
        key_variables=(KEY_VARIABLE, "OPENAI_API_KEY"),
        files=(".codex/auth.json",),
        command="codex login",
    )
    speaks = frozenset({Provider.OPENAI_RESPONSES, Provider.LOOPBACK})
    takes = frozenset({"system", "mcp", "model"})
    takes_in_own_home: frozenset[str] = frozenset()
    install = "npm install -g @openai/codex"

    def launch(self, job: Job) -> Launch:
        argv = [*job.program, "exec", "--json", "--skip-git-repo-check", "--ephemeral"]
        argv += ["-C", job.workspace, "--dangerously-bypass-approvals-and-sandbox"]
        if job.home is None:
            # His login is wanted; his servers would be there in one mode and in the other, and
            # settings on the command line only add to them.
            argv.append("--ignore-user-config")
        # Each of these would reach for the network, or wait for ever where there is none.
        for feature in ("plugins", "apps", "unbounded_connection_retries"):
            argv += ["--disable", feature]
        for setting in _settings(job):
            argv += ["-c", setting]
        if job.model is not None:
            argv += ["-m", job.model]
        env = {"CODEX_HOME": _home(job.home)} if job.home is not None else {}
        servers = codex_servers(job.mcp, None if job.home is not None else job.temp)
        if job.home is None:
            argv += ["-c", servers.setting]
        if job.endpoint is not None:
            env[ENDPOINT_KEY_VARIABLE] = job.endpoint.api_key
        return Launch(
            # `-`: the prompt is on stdin, where it may be of any length and begin with a dash.
            argv=(*argv, *job.arguments, "-"),
            env=env,
            stdin=job.prompt,
            files=(
                servers.files
                if job.home is None
                # Its home must be there, which this makes it be.
                else {f"{_home(job.home)}/config.toml": f"{servers.setting}\n"}
            ),
        )

    def result_files(self, job: Job) -> tuple[str, ...]:  # noqa: ARG002 - none for any job
        return ()

    def read(self, job: Job, transcript: Transcript, files: Mapping[str, str]) -> Reading:  # noqa: ARG002 - it needs no files
        reading = read_stream(transcript, job.mcp)
        if job.endpoint is None:
            return reading
        # Of a model that it was sent to on purpose, it is no news that it does not know it.
        kept = tuple(note for note in reading.notes if not note.startswith(_UNKNOWN_MODEL))
        return replace(reading, notes=kept)


def _home(home: str) -> str:
    return f"{home}/.codex"


def _settings(job: Job) -> list[str]:
    settings = [
        "check_for_update_on_startup=false",
        "analytics.enabled=false",
        'otel.exporter="none"',
    ]
    if job.endpoint is not None:
        settings += ["model_provider=paraval", f"model_providers.paraval={_provider(job.endpoint)}"]
    if job.system:
        settings.append(f"developer_instructions={quoted(job.system)}")
    return settings


def _provider(endpoint: Endpoint) -> str:
    return table(
        {
            "name": quoted("paraval"),
            "base_url": quoted(endpoint.base_url),
            "env_key": quoted(ENDPOINT_KEY_VARIABLE),
            "wire_api": quoted("responses"),
            "request_max_retries": str(RETRIES),
            "stream_max_retries": str(RETRIES),
        }
    )
