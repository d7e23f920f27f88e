"""A user's own agent: started by a command of the suite, read as the suite says.

How its output is read is told in `custom_output`, and how its refusals are known by the suite's
patterns in `custom_patterns`: those may take any time, and `read` leaves them out. It is told where
its model is by the variables that OpenAI's and Anthropic's libraries read.
"""

from __future__ import annotations

from collections.abc import Mapping

from paraval.agents.custom_output import read_objects, read_text
from paraval.agents.mcp_config import mcp_config, mcp_config_path
from paraval.agents.program import (
    AgentProgram,
    Endpoint,
    Job,
    Launch,
    Login,
    Reading,
    Transcript,
)
from paraval.records import Provider, Reads

CUSTOM_FIELDS = ("prompt", "workspace", "model", "mcp_config", "max_turns")
"""What its templates know beside the usual fields."""


def custom_fields(job: Job) -> dict[str, str]:
    """The values of CUSTOM_FIELDS; empty text where nothing is said."""
    values = (
        job.prompt,
        job.workspace,
        job.model or "",
        mcp_config_path(job.temp),
        "" if job.max_turns is None else str(job.max_turns),
    )
    return dict(zip(CUSTOM_FIELDS, values, strict=True))


class Custom:
    name = "custom"
    programs: tuple[str, ...] = ()
    version_arguments: tuple[str, ...] = ()
    login = Login(key_variables=())
    speaks = frozenset(Provider)
    takes = frozenset({"system", "max_turns", "mcp", "model"})
    takes_in_own_home: frozenset[str] = frozenset()
    install = ""

    def __init__(self, known: Mapping[str, AgentProgram]) -> None:
        """`known`: those whose output another may print too."""
        self._known = known

    def launch(self, job: Job) -> Launch:
        assert job.custom is not None
        config = mcp_config_path(job.temp)
        env = {"PARAVAL_SYSTEM": job.system} if job.system else {}
        if job.model is not None:
            env["PARAVAL_MODEL"] = job.model
        if job.endpoint is not None:
            env |= _way_to(job.endpoint)
        return Launch(
            argv=(*job.custom.command, *job.arguments),
            env=env,
            stdin=job.custom.stdin or "",
            files={config: mcp_config(job.mcp)},
        )

    def result_files(self, job: Job) -> tuple[str, ...]:
        like = self._like(job)
        return () if like is None else like.result_files(job)

    def read(self, job: Job, transcript: Transcript, files: Mapping[str, str]) -> Reading:
        assert job.custom is not None
        like = self._like(job)
        if like is not None:
            return like.read(job, transcript, files)
        if job.custom.reads is Reads.TEXT:
            return read_text(transcript, job.mcp)
        return read_objects(job.custom, transcript, job.mcp)

    def _like(self, job: Job) -> AgentProgram | None:
        assert job.custom is not None
        return None if job.custom.like is None else self._known.get(job.custom.like)


def _way_to(endpoint: Endpoint) -> dict[str, str]:
    if endpoint.provider is Provider.ANTHROPIC:
        return _anthropic(endpoint)
    openai = {"OPENAI_BASE_URL": endpoint.base_url, "OPENAI_API_KEY": endpoint.api_key}
    # A simulated one speaks both.
    simulated = endpoint.provider is Provider.LOOPBACK
    return {**openai, **_anthropic(endpoint)} if simulated else openai


def _anthropic(endpoint: Endpoint) -> dict[str, str]:
    return {
        "ANTHROPIC_BASE_URL": endpoint.base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": endpoint.api_key,
    }
