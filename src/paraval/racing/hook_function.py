"""A Python function as a hook: what it returns or yields, handed on one by one.

It may be async or not, and give one candidate, many, or an iterator of them. Like functions that
are targets, it cannot be ended by force: one that outlasts its timeout is left behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any

from paraval.functions import is_async
from paraval.racing.findings import Proposal
from paraval.racing.hook_ask import Ask
from paraval.threads import Threads, await_safely

TakeItem = Callable[[Any], Awaitable[bool]]
"""Whether there may be more."""

GRACE_S = 5.0
"""How long an async function may take to end when it is cancelled."""
_NO_MORE = object()


async def call_hook(
    function: Callable[..., Any], ask: Ask, take: TakeItem, threads: Threads
) -> None:
    """Calls it, and takes what it gives; raises what it raises."""
    if _runs_in_the_loop(function):
        given = await await_safely(_called, (function, ask))
    else:
        given = await threads.call(lambda: function(ask))
        if inspect.isawaitable(given):
            given = await await_safely(_awaited, (given,))
    async with contextlib.aclosing(_items(given, threads)) as items:
        async for item in items:
            if not await take(item):
                return


async def within(work: Awaitable[None], timeout_s: float | None) -> bool:
    """Whether it came to its end in time; raises what it raises."""
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task}, timeout=timeout_s)
    except asyncio.CancelledError:
        await _let_go(task)
        raise
    if task.done():
        task.result()
        return True
    await _let_go(task)
    return False


async def _let_go(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=GRACE_S)
    if not task.done():
        task.add_done_callback(lambda late: late.cancelled() or late.exception())
    elif not task.cancelled():
        task.exception()


def _runs_in_the_loop(function: Callable[..., Any]) -> bool:
    return is_async(function) or any(
        inspect.isasyncgenfunction(one)
        for one in (function, getattr(function, "__call__", None))  # noqa: B004 - the method itself
    )


async def _called(function: Callable[..., Any], ask: Ask) -> Any:
    given = function(ask)
    return await given if inspect.isawaitable(given) else given


async def _awaited(given: Awaitable[Any]) -> Any:
    return await given


async def _items(given: Any, threads: Threads) -> AsyncGenerator[Any, None]:
    """One by one: what it returned, or what that gives in its turn."""
    if given is None:
        return
    if hasattr(given, "__aiter__"):
        async with _closed_at_the_end(given.__aiter__()) as iterator:
            with contextlib.suppress(StopAsyncIteration):
                while True:
                    yield await await_safely(iterator.__anext__, ())
    elif _is_one(given):
        yield given
    else:
        # Each step of a generator is the user's code, and may take its time.
        steps = iter(given)
        while (item := await threads.call(lambda: next(steps, _NO_MORE))) is not _NO_MORE:
            yield item


@contextlib.asynccontextmanager
async def _closed_at_the_end(iterator: Any) -> AsyncIterator[Any]:
    try:
        yield iterator
    finally:
        if hasattr(iterator, "aclose"):
            await await_safely(iterator.aclose, ())


def _is_one(given: Any) -> bool:
    return isinstance(given, str | Mapping | Proposal) or not isinstance(given, Iterable)
