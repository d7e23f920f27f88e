"""`with_pydantic_evals.py BASE_URL CASES PARALLEL CLIENT`: the cases as a dataset.

CLIENT is `openai` (that library's client as it comes, its two retries included) or `aiohttp` (a
plain request, no retry).
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import Contains

Task = Callable[[str], Awaitable[str]]


def messages(question: str) -> list[Any]:
    return [{"role": "user", "content": question}]


@asynccontextmanager
async def openai_task(base_url: str) -> AsyncIterator[Task]:
    from openai import AsyncOpenAI  # noqa: PLC0415 - the other client's CPU and memory leave it out

    async with AsyncOpenAI(base_url=base_url, api_key="none") as client:

        async def answer(question: str) -> str:
            reply = await client.chat.completions.create(model="sim", messages=messages(question))
            return reply.choices[0].message.content or ""

        yield answer


@asynccontextmanager
async def aiohttp_task(base_url: str) -> AsyncIterator[Task]:
    import aiohttp  # noqa: PLC0415 - the other client's CPU and memory leave it out

    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, raise_for_status=True) as session:

        async def answer(question: str) -> str:
            body = {"model": "sim", "messages": messages(question)}
            async with session.post(f"{base_url}/chat/completions", json=body) as reply:
                text: str = (await reply.json())["choices"][0]["message"]["content"]
                return text

        yield answer


async def answered(base_url: str, cases: list[dict[str, str]], parallel: int, client: str) -> int:
    dataset = Dataset[str, str, None](
        name="bench",
        cases=[
            Case(
                name=case["id"], inputs=case["input"], evaluators=(Contains(value=case["expect"]),)
            )
            for case in cases
        ],
    )
    async with {"openai": openai_task, "aiohttp": aiohttp_task}[client](base_url) as task:
        report = await dataset.evaluate(task, max_concurrency=parallel, progress=False)
    return sum(all(check.value for check in case.assertions.values()) for case in report.cases)


if __name__ == "__main__":
    base_url, path, parallel, client = sys.argv[1:]
    cases = [json.loads(line) for line in Path(path).read_text().splitlines()]
    print(json.dumps({"answered": asyncio.run(answered(base_url, cases, int(parallel), client))}))
