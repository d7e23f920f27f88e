"""The fixture `model`: a model from the registry, as a test uses it.

With your own client: `OpenAI(base_url=model.base_url, api_key=model.api_key)`, with `model.model`
as the model's name. Or directly: `model.ask("...").text`, which records tokens and cost.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol

import pytest

from paraval.errors import ParavalError, RequestError
from paraval.loopback.scenario import Scenario
from paraval.loopback.server import LoopbackServer
from paraval.models.client import Models
from paraval.models.http_call import HttpCaller
from paraval.models.prices import Prices
from paraval.models.requests import FailedCall, ModelAnswer, Request, request_data
from paraval.pytest_plugin.models.choice import choice_in, choose, generate
from paraval.pytest_plugin.models.spending import SpendRecorder
from paraval.pytest_plugin.options import OPTIONS
from paraval.pytest_plugin.usage import shown, spending_for
from paraval.records import (
    CacheUse,
    Exchange,
    Failure,
    Message,
    Model,
    Outcome,
    Price,
    Provider,
    Spend,
    account_need,
)

__all__ = ["Answer", "ModelUnderTest", "NoAnswerError", "generate", "make_model"]

_PRICES = Prices()
Prompt = str | Sequence[Mapping[str, str]]
"""A question, or the turns of a conversation: `{"role": "user", "content": "..."}`."""


class NoAnswerError(ParavalError):
    """A model was called and did not answer. An outage counts as an error, not as a failed test."""

    # Show the name that users import it by in tracebacks and summaries.
    __module__ = "paraval"

    def __init__(self, failure: Failure) -> None:
        message = failure.message.replace("then resume", "then run the tests again")
        super().__init__(message)
        self.failure = replace(failure, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A model's answer."""

    text: str
    usage: Mapping[str, float]
    """The reported ones of input_tokens, output_tokens, cached_tokens and reasoning_tokens."""
    cost_usd: float | None
    """None: unknown."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """The known ones of model, finish_reason, request_id, first_token_s and tool_calls."""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelUnderTest:
    """A model from the registry. Its key is read from the environment when it is used."""

    record: Model = field(repr=False)
    name: str
    """The model's name in the registry."""
    model: str
    """The provider's name for the model."""
    base_url: str
    """For a simulated model: the local server's address."""
    _asking: ModelClient | None = field(repr=False, compare=False)
    _session: pytest.Session = field(repr=False, compare=False)

    @property
    def provider(self) -> str:
        return self.record.provider.value

    @property
    def account(self) -> str:
        return self.record.account

    @property
    def options(self) -> Mapping[str, Any]:
        return self.record.options

    @property
    def is_simulated(self) -> bool:
        return self.record.provider is Provider.LOOPBACK

    @property
    def price(self) -> Price | None:
        """The price from the registry, or else from the price table; None: unknown."""
        return _PRICES.price(self.record)

    @property
    def api_key(self) -> str:
        """The key from the environment.

        A simulated model accepts any key and distinguishes accounts by it. For a server without a
        key, this is "no-key", because clients require one.
        """
        if self.is_simulated:
            return self.account
        variable = self.record.api_key_env
        if variable is None:
            return "no-key"
        key = os.environ.get(variable, "").strip()
        if not key:
            message = f"model '{self.name}' needs a key: set {variable}, or choose other --models"
            # Not a failed test: no model was called.
            raise NoAnswerError(_no_key(account_need(self.account), message))
        return key

    def __str__(self) -> str:
        return self.name

    def ask(
        self,
        prompt: Prompt,
        *,
        system: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> Answer:
        """Make one call, recorded in the test's `usage`; raises NoAnswerError on failure."""
        __tracebackhide__ = True  # Tracebacks show the test, not us.
        spending = spending_for(self._test())
        request = self._request(prompt, system, temperature, max_tokens)
        return self._recorded(spending, request, self._client().ask(request))

    async def ask_async(
        self,
        prompt: Prompt,
        *,
        system: str | None = None,
        temperature: float | None = None,
        max_tokens: int | None = None,
    ) -> Answer:
        """Like `ask`, for async tests."""
        __tracebackhide__ = True
        spending = spending_for(self._test())
        request = self._request(prompt, system, temperature, max_tokens)
        return self._recorded(spending, request, await self._client().ask_async(request))

    def _client(self) -> ModelClient:
        return self._asking or _asking(self._session.config)

    def _request(
        self,
        prompt: Prompt,
        system: str | None,
        temperature: float | None,
        max_tokens: int | None,
    ) -> Request:
        tests = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        messages = [Message(role=test["role"], content=test["content"]) for test in tests]
        if system is not None:
            messages.insert(0, Message(role="system", content=system))
        return Request(
            model=self.record,
            messages=tuple(messages),
            temperature=temperature,
            max_tokens=max_tokens,
        )

    def _recorded(
        self, spending: SpendRecorder, request: Request, ended: ModelAnswer | FailedCall
    ) -> Answer:
        __tracebackhide__ = True
        reply = ended.text if isinstance(ended, ModelAnswer) else None
        spending.add_exchange(Exchange(request=request_data(request), reply=reply))
        label = shown(self.record, self.name)
        if isinstance(ended, FailedCall):
            # The engine needs to know even if nothing was spent: it learns limits from refusals.
            spending.add(label, ended.spend or Spend(calls=ended.use.requests), ended.use)
            raise NoAnswerError(ended.failure)
        spending.add(label, ended.spend, ended.use)
        return Answer(
            text=ended.text,
            usage=ended.spend.usage,
            cost_usd=ended.spend.cost_usd,
            metadata=ended.metadata,
            notes=ended.notes,
        )

    def _test(self) -> pytest.Item:
        """The test that makes the call: the model may belong to a fixture that many tests share."""
        stack = getattr(self._session, "_setupstate").stack  # noqa: B009 - private: no public API gives the test that runs
        for node in reversed(list(stack)):
            if isinstance(node, pytest.Item):
                return node
        raise RequestError(
            f"model '{self.name}' was called while no test is running",
            hint="call it in a test, or in a fixture that a test uses",
        )


def _no_key(account: str, message: str) -> Failure:
    return Failure(
        kind=Outcome.CRASHED, message=message, account=account, lasting=True, stops=account
    )


def make_model(request: pytest.FixtureRequest) -> ModelUnderTest:
    """Create the fixture's value, with session scope, so that fixtures of any scope can use it."""
    choice = choose(request.config, request.config.stash[OPTIONS])
    # Missing if a test requests the fixture by name at run time: then use the first model.
    name = getattr(request, "param", choice.names[0])
    record = choice.registry.models[name]
    asking = _asking(request.config) if record.provider is Provider.LOOPBACK else None
    return ModelUnderTest(
        record=record,
        name=record.name,
        model=record.model,
        base_url=record.base_url if asking is None else asking.address_of(record),
        _asking=asking,
        _session=request.session,
    )


def _asking(config: pytest.Config) -> ModelClient:
    """The session's client; it starts when it is first used."""
    found = config.stash.get(CLIENT, None)
    if found is None:
        choice = choice_in(config)
        assert choice is not None
        found = config.stash[CLIENT] = ModelClientThread(choice.registry.models.values())
        config.add_cleanup(found.close)
    return found


def serve_models(config: pytest.Config, path: str) -> None:
    """In the parent: call models for the tests of all workers, on this socket."""
    choice = choice_in(config)
    if choice is not None:
        client = ModelClientThread(choice.registry.models.values(), path)
        config.stash[CLIENT] = client
        config.add_cleanup(client.close)


# ---- the client: one for all workers, in a thread of the parent


STARTING_S = 60.0
LOOKING_S = 0.2
"""How often a waiting call wakes up, so that a timeout or Ctrl-C can end it."""


class ModelClient(Protocol):
    """Calls models, from any thread."""

    def address_of(self, model: Model) -> str:
        """The address of a model, including simulated ones."""

    def ask(self, request: Request) -> ModelAnswer | FailedCall: ...

    async def ask_async(self, request: Request) -> ModelAnswer | FailedCall: ...


CLIENT = pytest.StashKey[ModelClient]()


class ModelClientThread:
    """The client itself."""

    def __init__(self, models: Iterable[Model], path: str | None = None) -> None:
        """`path`: of a socket on which it also serves the workers."""
        self._simulated = [one for one in models if one.provider is Provider.LOOPBACK]
        self._path = path
        self._addresses: dict[str, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._started: Future[Models] = Future()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), name="paraval-models", daemon=True
        )
        self._thread.start()
        self._models = self._started.result(STARTING_S)

    def address_of(self, model: Model) -> str:
        return self._addresses.get(model.name, model.base_url)

    def ask(self, request: Request) -> ModelAnswer | FailedCall:
        asked = self._asked(request)
        try:
            while not asked.done():
                try:
                    asked.result(LOOKING_S)
                except TimeoutError:
                    continue
            return asked.result()
        finally:
            asked.cancel()

    async def ask_async(self, request: Request) -> ModelAnswer | FailedCall:
        return await asyncio.wrap_future(self._asked(request))

    def close(self) -> None:
        if self._loop is not None and self._ended is not None and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(STARTING_S)

    def _asked(self, request: Request) -> Future[ModelAnswer | FailedCall]:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(self._models.ask(request), self._loop)

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        try:
            async with AsyncExitStack() as stack:
                for model in self._simulated:
                    server = LoopbackServer(Scenario.load(model.scenario))
                    await stack.enter_async_context(server)
                    self._addresses[model.name] = server.base_url
                wire = HttpCaller(environment=os.environ, addresses=self._addresses)
                models = Models(
                    wire=await stack.enter_async_context(wire),
                    cache=None,
                    use=CacheUse.OFF,
                    prices=Prices(),
                    identities={},
                )
                if self._path is not None:
                    await asyncio.start_unix_server(partial(self._answer, models), self._path)
                self._started.set_result(models)
                await self._ended.wait()
        except Exception as error:
            if self._started.done():
                raise
            self._started.set_exception(error)

    async def _answer(
        self, models: Models, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """One call of a worker: a request, or a model whose address it needs."""
        asked = pickle.loads(await reader.read())  # noqa: S301 - from a worker, in a private folder
        answer = self.address_of(asked) if isinstance(asked, Model) else await models.ask(asked)
        writer.write(pickle.dumps(answer))
        writer.close()


class WorkersModelClient:
    """In a worker: asks the parent's client, by a connection for each call."""

    def __init__(self, path: str) -> None:
        self._path = path

    def address_of(self, model: Model) -> str:
        return str(self._ask(model))

    def ask(self, request: Request) -> ModelAnswer | FailedCall:
        answer: ModelAnswer | FailedCall = self._ask(request)
        return answer

    async def ask_async(self, request: Request) -> ModelAnswer | FailedCall:
        reader, writer = await asyncio.open_unix_connection(self._path)
        try:
            writer.write(pickle.dumps(request))
            writer.write_eof()
            answer: ModelAnswer | FailedCall = pickle.loads(await reader.read())  # noqa: S301
            return answer
        finally:
            writer.close()

    def _ask(self, asked: object) -> Any:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(None)
            connection.connect(self._path)
            connection.sendall(pickle.dumps(asked))
            connection.shutdown(socket.SHUT_WR)
            with connection.makefile("rb") as file:
                return pickle.loads(file.read())  # noqa: S301 - from our own parent
