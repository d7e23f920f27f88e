"""The agents that there are, how they are found, and what a machine has of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from paraval.agents.catalog import AGENTS, AgentPresence, find_program, presence
from paraval.agents.program import AgentEnd
from paraval.agents.provider_errors import end_in, status_in, wait_in
from paraval.agents.tools import split_name
from paraval.records import McpServer, Provider


def test_every_agent_is_there_by_its_name() -> None:
    assert tuple(AGENTS) == (
        "claude-code",
        "codex",
        "opencode",
        "gemini",
        "auggie",
        "aider",
        "mini-swe-agent",
        "custom",
    )
    for name, agent in AGENTS.items():
        assert agent.name == name
        assert agent.takes <= {"system", "max_turns", "retries", "before_first", "mcp", "model"}
        assert agent.takes_in_own_home <= agent.takes
        assert isinstance(agent.programs, tuple)
        assert agent.speaks <= set(Provider)


def program_in(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{script}\n")
    path.chmod(0o755)
    return path


def test_a_program_is_found_on_the_path_alone(tmp_path: Path) -> None:
    claude = AGENTS["claude-code"]
    assert find_program(claude, str(tmp_path)) is None
    path = program_in(tmp_path, "claude", "")
    assert find_program(claude, str(tmp_path)) == (str(path),)


def seen(folder: Path, **environment: str) -> dict[str, AgentPresence]:
    told = presence({"PATH": str(folder / "bin"), **environment}, folder / "home")
    return {one.name: one for one in told}


def test_what_is_here_is_told_with_its_version_and_login(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    program_in(programs, "claude", "print('2.1.325 (Claude Code)')")
    program_in(programs, "codex", "raise SystemExit(3)")
    login = tmp_path / "home" / ".codex" / "auth.json"
    login.parent.mkdir(parents=True)
    login.touch()
    here = seen(tmp_path, ANTHROPIC_API_KEY="sk-1")
    claude, codex, gemini = here["claude-code"], here["codex"], here["gemini"]
    assert (claude.version, claude.key) == ("2.1.325", "ANTHROPIC_API_KEY")
    assert claude.advice == "uses the key in ANTHROPIC_API_KEY"
    assert (codex.version, codex.key, codex.logged_in) == (None, None, True)
    assert "`home: mine`" in codex.advice
    assert (gemini.program, gemini.version) == (None, None)
    assert gemini.advice.startswith("not installed: npm install")
    assert "custom" not in here


def test_asking_for_versions_leaves_the_users_home_and_the_current_folder_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Agents make their settings, caches and logs even when they only print a version."""
    for name in ("bin", "home", "here"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    litter = "import os, pathlib; [pathlib.Path(p, 'x').touch() for p in (os.environ['HOME'], '.')]"
    program_in(tmp_path / "bin", "gemini", f"{litter}; print('0.61.0')")
    assert seen(tmp_path, HOME=str(tmp_path / "home"))["gemini"].version == "0.61.0"
    assert list((tmp_path / "home").iterdir()) == []
    assert list((tmp_path / "here").iterdir()) == []


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("This is mini-swe-agent version 2.4.6.\nCheck the docs", "2.4.6"),
        ("v1.2.3-rc.1+build.5, of today", "1.2.3-rc.1+build.5"),
        ("1.0-.", "1.0"),
    ],
)
def test_a_version_ends_where_the_sentence_around_it_does(
    tmp_path: Path, said: str, version: str
) -> None:
    (tmp_path / "bin").mkdir()
    program_in(tmp_path / "bin", "codex", f"print({said!r})")
    assert seen(tmp_path)["codex"].version == version


def test_without_key_and_login_both_ways_are_told(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program_in(tmp_path / "bin", "codex", "print('codex-cli 0.166.0')")
    codex = seen(tmp_path)["codex"]
    assert codex.version == "0.166.0"
    assert codex.advice == (
        "no key and no login: set CODEX_API_KEY or OPENAI_API_KEY, or log in (codex login) and set"
        " `home: mine`"
    )


# ---- words


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("try again in 2 hours 3 minutes", 7380),
        ("Please try again in 11.054s.", 11.054),
        ("Retry-After: 20", 20),
        ("retry after 500ms", 0.5),
        ("try again in 1 day, 2 hours and 3 minutes", 93_780),
        ("try again later", None),
        ("try again in a moment", None),
        ("limit reached|1000000000", 0),
        ("try again in 99999999999 days", 31 * 86_400),
    ],
)
def test_when_to_come_back_is_read_from_words(words: str, seconds: float | None) -> None:
    assert wait_in(words) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("last status: 429 Too Many Requests", 429),
        ("API Error: 500 x", 500),
        ("Request rejected (429) · no", 429),
        ("got status code 503", 503),
        ("404 Not Found", 404),
        ("it took 429 ms", None),
        ("wrote 500 lines", None),
    ],
)
def test_a_status_is_read_from_words_that_name_one(words: str, status: int | None) -> None:
    assert status_in(words) == status


def test_a_quota_is_no_rate_limit() -> None:
    assert end_in("insufficient_quota", 429) is AgentEnd.NO_CREDIT
    assert end_in("You exceeded your current quota", 429) is AgentEnd.RATE_LIMITED
    assert end_in("nothing of the kind") is None


def test_the_names_of_a_servers_tools_are_split_by_the_servers_that_there_are() -> None:
    servers = (McpServer(name="a"), McpServer(name="a__b"), McpServer(name="my.search"))
    assert split_name("mcp__a__b__c", servers) == ("a__b", "c")
    assert split_name("mcp__a__x", servers) == ("a", "x")
    assert split_name("mcp__my_search__find", servers) == ("my.search", "find")
    assert split_name("mcp__other__find__it", servers) == ("other", "find__it")
    assert split_name("mcp__odd", servers) == (None, "mcp__odd")
    assert split_name("Bash", servers) == (None, "Bash")
