"""`with_braintrust.py BASE_URL CASES PARALLEL`: the cases as a local Braintrust `Eval`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from braintrust import EvalAsync, EvalCase
from openai import AsyncOpenAI


def contains(input: str, output: str, expected: str) -> bool:  # noqa: A002, ARG001 - its names
    return expected in output


async def answered(base_url: str, cases: list[dict[str, str]], parallel: int) -> int:
    async with AsyncOpenAI(base_url=base_url, api_key="none") as client:

        async def answer(question: str) -> str:
            messages = [{"role": "user", "content": question}]
            reply = await client.chat.completions.create(model="sim", messages=messages)
            return reply.choices[0].message.content or ""

        done = await EvalAsync(
            "bench",
            data=[EvalCase(input=case["input"], expected=case["expect"]) for case in cases],
            task=answer,
            scores=[contains],
            max_concurrency=parallel,
            no_send_logs=True,
        )
    return sum(result.scores.get("contains") == 1 for result in done.results)


if __name__ == "__main__":
    base_url, path, parallel = sys.argv[1:]
    cases = [json.loads(line) for line in Path(path).read_text().splitlines()]
    print(json.dumps({"answered": asyncio.run(answered(base_url, cases, int(parallel)))}))
