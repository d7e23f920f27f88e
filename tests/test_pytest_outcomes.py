"""What a test's end means: a wrong answer, an error, an outage, and whose account that was."""

from __future__ import annotations

import asyncio
import email.message
import errno
import json
import os
import socket
import subprocess
import sys
import textwrap
import urllib.error
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from paraval.errors import RateLimitedError, TransientError
from paraval.pytest_plugin.models.outages import Outage, OutageScope, outage_in
from paraval.records import Failure, Outcome
from paraval.testing import Loopback, loopback

Ask = Callable[[Loopback], object]


def ask_openai(server: Loopback) -> object:
    with openai.OpenAI(base_url=server.base_url, api_key="a", max_retries=0, timeout=0.3) as client:
        return client.chat.completions.create(
            model="any", messages=[{"role": "user", "content": "hello"}]
        )


def ask_anthropic(server: Loopback) -> object:
    with anthropic.Anthropic(
        base_url=server.anthropic_base_url, api_key="a", max_retries=0, timeout=0.3
    ) as client:
        return client.messages.create(
            model="any", max_tokens=9, messages=[{"role": "user", "content": "hello"}]
        )


def ask_httpx(server: Loopback) -> object:
    body = {"model": "any", "messages": [{"role": "user", "content": "hello"}]}
    answer = httpx2.post(f"{server.base_url}/chat/completions", json=body, timeout=0.3)
    return answer.raise_for_status()


async def ask_aiohttp_async(server: Loopback) -> None:
    import aiohttp

    body = {"model": "any", "messages": [{"role": "user", "content": "hello"}]}
    url, limit = f"{server.base_url}/chat/completions", aiohttp.ClientTimeout(total=0.3)
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, json=body, timeout=limit) as answer,
    ):
        answer.raise_for_status()
        await answer.read()


def ask_aiohttp(server: Loopback) -> None:
    asyncio.run(ask_aiohttp_async(server))


def outage_of(ask: Ask, **scenario: Any) -> Outage | None:
    with loopback(**scenario) as server, pytest.raises(Exception) as caught:  # noqa: PT011 - any
        ask(server)
    return outage_in(caught.value)


EVERYONE = (ask_openai, ask_anthropic, ask_httpx, ask_aiohttp)
PACKAGES: dict[Ask, str] = {
    ask_openai: "openai",
    ask_anthropic: "anthropic",
    ask_httpx: "httpx2",
    ask_aiohttp: "aiohttp",
}


@pytest.mark.parametrize("ask", EVERYONE)
def test_a_refusal_by_a_rate_limit_is_one_and_says_when_to_come_back(ask: Ask) -> None:
    fault = {"kind": "status", "status": 429, "retry_after": 7}
    outage = outage_of(ask, faults=[fault])
    assert outage is not None
    assert (outage.kind, outage.retry_after) == (Outcome.RATE_LIMITED, 7.0)
    assert not outage.lasting
    assert outage.client == PACKAGES[ask]


@pytest.mark.parametrize("ask", EVERYONE)
def test_a_server_that_fails_is_an_outage(ask: Ask) -> None:
    outage = outage_of(ask, faults=[{"kind": "status", "status": 503}])
    assert outage is not None
    assert (outage.kind, outage.lasting) == (Outcome.INFRA_ERROR, False)


@pytest.mark.parametrize("ask", EVERYONE)
def test_a_server_that_is_silent_is_a_timeout(ask: Ask) -> None:
    outage = outage_of(ask, faults=[{"kind": "half_open"}])
    assert outage is not None
    assert outage.kind is Outcome.TIMEOUT


@pytest.mark.parametrize("ask", EVERYONE)
def test_a_server_that_is_not_there_is_an_outage(ask: Ask) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        root = f"http://127.0.0.1:{taken.getsockname()[1]}"
        nobody: Any = SimpleNamespace(base_url=f"{root}/v1", anthropic_base_url=root)
        with pytest.raises(Exception) as caught:  # noqa: PT011 - each client has its own
            ask(nobody)
    outage = outage_in(caught.value)
    assert outage is not None
    assert outage.kind is Outcome.INFRA_ERROR


@pytest.mark.parametrize("ask", [ask_openai, ask_anthropic])
def test_a_key_or_a_model_that_is_refused_and_a_quota_that_is_used_up_last(ask: Ask) -> None:
    key = outage_of(ask, keys=["another"])
    assert key is not None
    assert (key.kind, key.lasting, key.stops) == (Outcome.CRASHED, True, OutageScope.ACCOUNT)
    model = outage_of(ask, models_only=True)
    assert model is not None
    assert (model.kind, model.lasting, model.stops) == (Outcome.CRASHED, True, OutageScope.MODEL)
    quota = outage_of(ask, quota=0)
    assert quota is not None
    assert (quota.kind, quota.lasting, quota.stops) == (
        Outcome.RATE_LIMITED,
        True,
        OutageScope.ACCOUNT,
    )


@pytest.mark.parametrize("ask", EVERYONE)
def test_a_request_that_is_wrong_in_itself_is_no_outage(ask: Ask) -> None:
    assert outage_of(ask, faults=[{"kind": "status", "status": 400}]) is None


@pytest.mark.parametrize("ask", [ask_httpx, ask_aiohttp])
def test_what_a_web_client_is_denied_may_be_what_is_tested(ask: Ask) -> None:
    assert outage_of(ask, keys=["another"]) is None
    assert outage_of(ask, models_only=True) is None


def test_a_client_without_a_key_says_nothing_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(openai.OpenAIError) as caught:
        openai.OpenAI()
    outage = outage_in(caught.value)
    assert outage is not None
    assert (outage.kind, outage.stops) == (Outcome.CRASHED, OutageScope.ACCOUNT)
    assert outage.client == "openai"


# ---- clients that are not here, by what their exceptions are called


def error_of(module: str, *names: str, base: type[Exception] = Exception, **held: Any) -> Exception:
    """An exception as a client has it, without the client."""
    kind: type[Exception] = base
    for name in reversed(names):
        kind = type(name, (kind,), {"__module__": module})
    error = kind("what it says")
    for name, value in held.items():
        setattr(error, name, value)
    return error


def aws(code: str, status: int) -> dict[str, Any]:
    return {
        "Error": {"Code": code, "Message": "no"},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": {"Retry-After": "3"}},
    }


def response(status: int, **headers: str) -> SimpleNamespace:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return SimpleNamespace(status_code=status, headers=named)


def grpc_code(name: str) -> Callable[[], SimpleNamespace]:
    return lambda: SimpleNamespace(name=name, value=(8, name))


REFUSED, BROKEN, LATE = Outcome.RATE_LIMITED, Outcome.INFRA_ERROR, Outcome.TIMEOUT
OPENAIS = type("RateLimitError", (Exception,), {"__module__": "openai", "status_code": 429})
REQUESTS, BOTO, GOOGLE = "requests.exceptions", "botocore.exceptions", "google.api_core.exceptions"
RPC = ("grpc._channel", "_InactiveRpcError", "RpcError")
MISTRAL: dict[str, Any] = {
    "status_code": 429,
    "raw_response": response(429, retry_after_ms="1500"),
    "body": '{"message": "slow down"}',
}
COHERE: dict[str, Any] = {"status_code": 429, "headers": {"Retry-After": "4"}}
LITELLM: dict[str, Any] = {"status_code": 429, "llm_provider": "groq"}
CLIENTS: list[tuple[Exception, Outcome | None, float | None]] = [
    (error_of(REQUESTS, "HTTPError", response=response(429, Retry_After="2")), REFUSED, 2),
    (error_of(REQUESTS, "HTTPError", response=response(502)), BROKEN, None),
    (error_of(REQUESTS, "HTTPError", response=response(404)), None, None),
    (error_of(REQUESTS, "ConnectionError", base=OSError), BROKEN, None),
    (error_of(REQUESTS, "ReadTimeout", "Timeout", base=OSError), LATE, None),
    (error_of(REQUESTS, "ConnectTimeout", "Timeout", base=OSError), BROKEN, None),
    (error_of(REQUESTS, "JSONDecodeError", base=ValueError), None, None),
    (error_of("urllib3.exceptions", "MaxRetryError"), BROKEN, None),
    (error_of("httpx", "ReadError", "NetworkError"), BROKEN, None),
    (error_of("httpx", "LocalProtocolError", "ProtocolError"), None, None),
    (error_of(BOTO, "ClientError", response=aws("ThrottlingException", 400)), REFUSED, 3),
    (error_of(BOTO, "ClientError", response=aws("ServiceUnavailableException", 503)), BROKEN, 3),
    (error_of(BOTO, "ClientError", response=aws("ValidationException", 400)), None, None),
    (error_of(BOTO, "EndpointConnectionError"), BROKEN, None),
    (error_of(GOOGLE, "ResourceExhausted", "TooManyRequests", code=429), REFUSED, None),
    (error_of(GOOGLE, "DeadlineExceeded", "GatewayTimeout", code=504), BROKEN, None),
    (error_of("google.genai.errors", "ServerError", "APIError", code=503), BROKEN, None),
    (error_of(*RPC, code=grpc_code("RESOURCE_EXHAUSTED")), REFUSED, None),
    (error_of(*RPC, code=grpc_code("DEADLINE_EXCEEDED")), LATE, None),
    (error_of(*RPC, code=grpc_code("INVALID_ARGUMENT")), None, None),
    (error_of("litellm.exceptions", "RateLimitError", **LITELLM), REFUSED, None),
    (error_of("litellm.exceptions", "Timeout", status_code=408), BROKEN, None),
    (error_of("mistralai.models.sdkerror", "SDKError", **MISTRAL), REFUSED, 1.5),
    (error_of("cohere.errors", "TooManyRequestsError", "ApiError", **COHERE), REFUSED, 4),
    (error_of("groq", "InternalServerError", "APIStatusError", status_code=500), BROKEN, None),
    (error_of("tests.mine", "MyOwnRefusal", base=OPENAIS), REFUSED, None),
    (RateLimitedError("no", retry_after=9), REFUSED, 9),
    (TransientError("no"), BROKEN, None),
    (socket.gaierror(-2, "Name or service not known"), BROKEN, None),
    (ConnectionResetError("by peer"), BROKEN, None),
    (OSError(errno.ENETUNREACH, "Network is unreachable"), BROKEN, None),
    (TimeoutError(), LATE, None),
    (FileNotFoundError("models.json"), None, None),
    (KeyError("answer"), None, None),
    (urllib.error.URLError(TimeoutError("timed out")), LATE, None),
    (urllib.error.URLError(ConnectionRefusedError("no")), BROKEN, None),
]


@pytest.mark.parametrize(("error", "kind", "wait"), CLIENTS, ids=lambda one: type(one).__name__)
def test_clients_are_known_by_the_names_of_their_exceptions(
    error: Exception, kind: Outcome | None, wait: float | None
) -> None:
    outage = outage_in(error)
    assert (outage and outage.kind, outage and outage.retry_after) == (kind, wait)


def test_urllibs_status_and_header_are_read() -> None:
    headers = email.message.Message()
    headers["Retry-After"] = "5"
    with urllib.error.HTTPError("http://host.example/v1", 429, "no", headers, None) as error:
        outage = outage_in(error)
    assert outage is not None
    assert (outage.kind, outage.retry_after) == (REFUSED, 5.0)


def test_an_exception_that_raises_when_it_is_looked_at_is_no_outage() -> None:
    class OddError(Exception):
        def __str__(self) -> str:
            raise pytest.fail.Exception("from its text")

    OddError.__module__ = None  # type: ignore[assignment]  # just so
    assert outage_in(OddError()) is None
    OddError.__module__ = "openai"
    OddError.__name__ = "RateLimitError"
    assert outage_in(OddError()) is None


# ---- what comes of what


def raised(act: Callable[[], object]) -> BaseException:
    try:
        act()
    except BaseException as error:  # noqa: BLE001 - whatever it is, it is what is looked at
        return error
    raise AssertionError("nothing was raised")


def while_handling(error: BaseException, *, then: BaseException) -> BaseException:
    def act() -> None:
        try:
            raise error
        except type(error):
            raise then  # noqa: B904 - without a cause, which is what is tested

    return raised(act)


def caused(then: BaseException, by: BaseException | None) -> BaseException:
    def act() -> None:
        try:
            raise ConnectionResetError("first")  # noqa: TRY301 - what is raised next has it behind it
        except ConnectionResetError:
            raise then from by

    return raised(act)


def test_an_assertion_about_an_outage_is_a_verdict_and_one_from_an_outage_is_none() -> None:
    down = ConnectionResetError("down")
    assert outage_in(while_handling(down, then=AssertionError("did not fall back"))) is None
    assert outage_in(while_handling(down, then=pytest.fail.Exception("no"))) is None
    assert outage_in(caused(AssertionError("no answer"), by=down)) is not None


def test_any_other_exception_while_an_outage_is_handled_is_the_outage() -> None:
    down = ConnectionResetError("down")
    assert outage_in(while_handling(down, then=RuntimeError("could not ask"))) is not None
    assert outage_in(caused(RuntimeError("wrapped"), by=TimeoutError("late"))) is not None
    assert outage_in(caused(RuntimeError("of its own"), by=None)) is None
    assert outage_in(caused(RuntimeError("of its own"), by=ValueError("x"))) is None


def test_a_clients_own_word_counts_for_more_than_what_came_before() -> None:
    denied = error_of("openai", "BadRequestError", status_code=400)
    assert outage_in(while_handling(ConnectionResetError("first try"), then=denied)) is None


def test_in_a_group_one_that_failed_by_itself_decides() -> None:
    down, late = RateLimitedError("no", retry_after=3), TimeoutError("late")
    gone = asyncio.CancelledError()
    found = outage_in(BaseExceptionGroup("all", [late, ExceptionGroup("two", [down]), gone]))
    assert found is not None
    assert (found.kind, found.retry_after) == (REFUSED, 3.0)
    assert outage_in(ExceptionGroup("all", [down, AssertionError("wrong")])) is None
    assert outage_in(ExceptionGroup("all", [down, KeyError("x")])) is None


def test_a_chain_without_an_end_ends() -> None:
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__cause__ = other, one
    assert outage_in(one) is None


def test_what_paravals_own_client_says_is_taken_as_it_is() -> None:
    failure = Failure(
        kind=REFUSED, message="no credit", account="account:a", lasting=True, stops="account:a"
    )
    error = RuntimeError("no credit")
    error.failure = failure  # type: ignore[attr-defined]  # as NoAnswerError has it
    outage = outage_in(error)
    assert outage is not None
    assert (outage.lasting, outage.stops) == (True, OutageScope.ACCOUNT)


# ---- real tests, really reported

CONFTEST = """
    import json
    from types import SimpleNamespace

    import pytest

    from paraval.pytest_plugin.models.model_accounts import accounts_of, needs_of
    from paraval.pytest_plugin.models.item_outcomes import result_of

    PHASES, RESULTS = {}, {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(item, call):
        report = yield
        error = call.excinfo.value if call.excinfo else None
        PHASES.setdefault(item, []).append(SimpleNamespace(report=report, error=error))
        if report.when == "teardown":
            result = result_of(item, PHASES.pop(item), 1.0)
            error = result.error
            RESULTS[item.name] = {
                "outcome": result.outcome,
                "score": result.score,
                "reason": error.message if error else result.grades[0].reason,
                "account": error and error.account,
                "stops": error and error.stops,
                "retry_after": error and error.retry_after,
                "needs": needs_of(item),
                "uses": [use.account for use in result.uses],
            }
        return report

    def pytest_sessionfinish(session):
        RESULTS["accounts"] = sorted(accounts_of(session.items))
        print("RESULTS" + json.dumps(RESULTS))
"""
TESTS = """
    import openai
    import pytest

    def refusal():
        import httpx2
        request = httpx2.Request("POST", "https://host.example/v1")
        headers = {"retry-after": "2"}
        return openai.RateLimitError(
            "slow down",
            response=httpx2.Response(429, headers=headers, request=request),
            body={"message": "slow down"},
        )

    def key_refused():
        import httpx2
        request = httpx2.Request("POST", "https://host.example/v1")
        response = httpx2.Response(401, request=request)
        return openai.AuthenticationError("wrong key", response=response, body=None)

    def test_passes(): pass
    def test_wrong():
        assert 1 + 1 == 3, "it cannot count"
    def test_fails(): pytest.fail("by hand")
    def test_breaks(): {}["answer"]
    def test_skipped(): pytest.skip("not today")
    @pytest.mark.xfail(reason="known")
    def test_xfailed(): assert False
    @pytest.mark.xfail
    def test_xpassed(): pass
    @pytest.mark.xfail(strict=True, reason="known")
    def test_xpassed_strictly(): pass

    @pytest.fixture
    def broken(): raise KeyError("port")
    def test_setup(broken): pass
    @pytest.fixture
    def leaky():
        yield
        raise ValueError("left open")
    def test_teardown(leaky): pass
    def test_wrong_and_teardown(leaky): assert False
    @pytest.fixture
    def down(): raise ConnectionRefusedError("nobody there")
    def test_setup_outage(down): pass
    @pytest.fixture
    def down_later():
        yield
        raise ConnectionResetError("gone")
    def test_wrong_and_outage(down_later): assert False
    def test_right_and_outage(down_later): pass

    def test_refused(): raise refusal()
    def test_key(): raise key_refused()
    @pytest.mark.retry_rate_limits
    def test_refused_patiently(): raise refusal()
    @pytest.mark.retry_rate_limits(account="team-a", tries=3)
    def test_key_of_a_team(): raise key_refused()
    @pytest.mark.retry_rate_limits("team-b")
    def test_patient_and_well(): pass
    @pytest.mark.timeout(0.2)
    def test_late():
        import time
        time.sleep(5)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("outcomes")
    (folder / "conftest.py").write_text(textwrap.dedent(CONFTEST))
    (folder / "test_all.py").write_text(textwrap.dedent(TESTS))
    (folder / "pytest.ini").write_text(
        "[pytest]\nmarkers =\n  retry_rate_limits\ntimeout_method = signal\n"
    )
    done = run_pytest(folder, "-s", "-p", "no:cacheprovider", "-p", "pytest_timeout")
    line = next(line for line in done.stdout.splitlines() if "RESULTS" in line)
    found: dict[str, Any] = json.loads(line.partition("RESULTS")[2])
    return found


def run_pytest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", *arguments],
        cwd=folder,
        env={**env, "COLUMNS": "160", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "outcome", "reason"),
    [
        ("test_passes", Outcome.PASSED, ""),
        ("test_wrong", Outcome.FAILED, "AssertionError: it cannot count"),
        ("test_fails", Outcome.FAILED, "Failed: by hand"),
        ("test_breaks", Outcome.FAILED, "KeyError: 'answer'"),
        ("test_skipped", Outcome.SKIPPED, "not today"),
        ("test_xfailed", Outcome.SKIPPED, "expected to fail: known"),
        ("test_xpassed", Outcome.PASSED, ""),
        ("test_xpassed_strictly", Outcome.FAILED, "[XPASS(strict)] known"),
        ("test_setup", Outcome.CRASHED, "setup: KeyError: 'port'"),
        ("test_teardown", Outcome.CRASHED, "teardown: ValueError: left open"),
        ("test_wrong_and_teardown", Outcome.FAILED, "assert False"),
        ("test_setup_outage", BROKEN, "setup: ConnectionRefusedError: nobody there"),
        ("test_wrong_and_outage", Outcome.FAILED, "assert False"),
        ("test_right_and_outage", BROKEN, "teardown: ConnectionResetError: gone"),
        ("test_refused", REFUSED, "RateLimitError: slow down"),
        ("test_key", Outcome.CRASHED, "AuthenticationError: wrong key"),
        ("test_late", LATE, "Failed: Timeout (>0.2s) from pytest-timeout."),
    ],
)
def test_each_end_of_a_test_has_its_outcome_and_its_reason(
    results: dict[str, Any], name: str, outcome: Outcome, reason: str
) -> None:
    found = results[name]
    assert (found["outcome"], found["reason"]) == (outcome, reason)
    scores = {Outcome.PASSED: 1.0, Outcome.FAILED: 0.0}
    assert found["score"] == scores.get(outcome)


def test_only_marked_tests_have_the_engine_look_after_their_account(
    results: dict[str, Any],
) -> None:
    alone, patient = results["test_refused"], results["test_refused_patiently"]
    assert (alone["needs"], patient["needs"]) == ([], ["account:openai"])
    assert alone["account"] == patient["account"] == "account:openai"
    assert patient["retry_after"] == 2.0
    assert results["test_key"]["stops"] is None
    team = results["test_key_of_a_team"]
    assert (team["account"], team["stops"]) == ("account:team-a", "account:team-a")
    assert results["test_patient_and_well"]["uses"] == ["account:team-b"]
    assert results["accounts"] == ["account:openai", "account:team-a", "account:team-b"]
