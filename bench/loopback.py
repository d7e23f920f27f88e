"""How fast the model server is: requests a second on one core, streaming, from clients in other
processes. `python bench/loopback.py [requests] [at once]`

The server's own CPU decides, not the wall: on a small machine the clients take the other cores.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import statistics
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

GOAL_PER_S = 2000
CLIENTS = 2
BODIES: dict[str, dict[str, Any]] = {
    "/chat/completions": {"stream_options": {"include_usage": True}},
    "/responses": {},
    "/messages": {"max_tokens": 500},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What one client process does."""

    base_url: str
    path: str
    stream: bool
    requests: int
    at_once: int

    def body(self, number: int) -> dict[str, Any]:
        words = f"Question {number}: " + "what is the answer to all this? " * 6
        said = [{"role": "user", "content": words}]
        asked = {"input": said} if self.path == "/responses" else {"messages": said}
        further = BODIES[self.path] if self.stream or self.path == "/messages" else {}
        return {"model": "m", "stream": self.stream, **asked, **further}


def serve(pipe: Connection) -> None:
    """The server's process: one core; reports its CPU time on request."""
    asyncio.run(_serve(pipe))


async def _serve(pipe: Connection) -> None:
    from paraval.loopback.scenario import Scenario  # noqa: PLC0415 - in the server only
    from paraval.loopback.server import LoopbackServer  # noqa: PLC0415

    async with LoopbackServer(Scenario.load()) as server:
        pipe.send(server.base_url)
        while await asyncio.to_thread(pipe.recv):
            pipe.send((time.process_time(), server.stats().total))
            server.reset()


def call(load: Load) -> None:
    asyncio.run(_call(load))


async def _call(load: Load) -> None:
    import aiohttp  # noqa: PLC0415 - in the clients only

    numbers = iter(range(load.requests))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def worker() -> None:
            for number in numbers:
                url = load.base_url + load.path
                async with session.post(url, json=load.body(number)) as response:
                    assert response.status == 200
                    await response.read()

        await asyncio.gather(*(worker() for _ in range(load.at_once)))


def measure(pipe: Connection, load: Load) -> tuple[float, float]:
    """Requests a second by the server's CPU, and by the wall."""
    pipe.send(True)
    cpu, _ = pipe.recv()
    clients = [multiprocessing.Process(target=call, args=(load,)) for _ in range(CLIENTS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
        assert client.exitcode == 0, "a client failed"
    pipe.send(True)
    cpu_after, total = pipe.recv()
    assert total.answered == CLIENTS * load.requests
    return total.answered / (cpu_after - cpu), total.answered / (total.last_at - total.first_at)


def main() -> None:
    requests = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
    at_once = int(sys.argv[2]) if len(sys.argv) > 2 else 50
    ours, theirs = multiprocessing.Pipe()
    server = multiprocessing.Process(target=serve, args=(theirs,))
    server.start()
    base_url: str = ours.recv()
    print(f"{requests:,} requests, {at_once} at once, {os.cpu_count()} cores; best of 3")
    for path in BODIES:
        for stream in (True, False):
            load = Load(
                base_url=base_url,
                path=path,
                stream=stream,
                requests=requests // CLIENTS,
                at_once=at_once // CLIENTS,
            )
            runs = [measure(ours, load) for _ in range(3)]
            by_cpu = max(cpu for cpu, _ in runs)
            by_wall = statistics.median(wall for _, wall in runs)
            verdict = "reached" if by_cpu >= GOAL_PER_S else "MISSED"
            form = "streaming" if stream else "whole"
            print(
                f"{verdict:8} {path:18} {form:10} {by_cpu:7,.0f} a second of server CPU, "
                f"{by_wall:7,.0f} by the wall; goal: >= {GOAL_PER_S:,}",
                flush=True,
            )
    ours.send(False)
    server.join()


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
