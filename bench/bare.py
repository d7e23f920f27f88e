"""The least that asks a model N times: a bare aiohttp loop, nothing stored, nothing retried.

`bare.py BASE_URL CASES PARALLEL` makes the streaming requests that paraval makes, reads each stream
to its end, and takes the text and the usage out of it. Prints how many were answered as expected.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp

Case = dict[str, str]


def read_stream(body: bytes) -> tuple[str, int]:
    """The text of a stream of `/chat/completions`, and the tokens of its usage."""
    texts, tokens = [], 0
    for line in body.split(b"\n"):
        if not line.startswith(b"data: ") or line == b"data: [DONE]":
            continue
        chunk: dict[str, Any] = json.loads(line[6:])
        texts += [choice["delta"].get("content") or "" for choice in chunk["choices"]]
        if chunk.get("usage"):
            tokens = chunk["usage"]["prompt_tokens"] + chunk["usage"]["completion_tokens"]
    return "".join(texts), tokens


async def ask(session: aiohttp.ClientSession, url: str, case: Case) -> bool:
    body = {
        "model": "sim",
        "messages": [{"role": "user", "content": case["input"]}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    async with session.post(url, json=body) as answer:
        text, tokens = read_stream(await answer.read())
        return answer.status == 200 and tokens > 0 and case["expect"] in text


async def ask_in_turn(session: aiohttp.ClientSession, url: str, cases: Iterator[Case]) -> int:
    return sum([await ask(session, url, case) for case in cases])


async def ask_all(base_url: str, cases: list[Case], parallel: int) -> int:
    rest = iter(cases)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        url = f"{base_url}/chat/completions"
        return sum(
            await asyncio.gather(*(ask_in_turn(session, url, rest) for _ in range(parallel)))
        )


if __name__ == "__main__":
    base_url, path, parallel = sys.argv[1:]
    cases = [json.loads(line) for line in Path(path).read_text().splitlines()]
    print(json.dumps({"answered": asyncio.run(ask_all(base_url, cases, int(parallel)))}))
