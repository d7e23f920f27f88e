"""`with_deepeval.py BASE_URL CASES PARALLEL`: the cases judged by a metric that asks the model.

DeepEval's `evaluate` does not produce answers: what it runs concurrently is metrics, and those are
what usually calls a model. So the call is in the metric.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["DEEPEVAL_TELEMETRY_OPT_OUT"] = "1"  # read when it is imported

from deepeval import evaluate
from deepeval.evaluate import AsyncConfig, ErrorConfig
from deepeval.metrics import BaseMetric
from deepeval.test_case import LLMTestCase
from openai import AsyncOpenAI

base_url, path, parallel = sys.argv[1:]
cases = [json.loads(line) for line in Path(path).read_text().splitlines()]
client = AsyncOpenAI(base_url=base_url, api_key="none")


class AnswerContains(BaseMetric):
    """Whether the model's answer contains what is expected."""

    threshold = 1.0
    async_mode = True

    async def a_measure(self, test_case: LLMTestCase, **_: object) -> float:
        messages = [{"role": "user", "content": test_case.input}]
        reply = await client.chat.completions.create(model="sim", messages=messages)
        found = test_case.expected_output in (reply.choices[0].message.content or "")
        self.score, self.success = float(found), found
        return self.score

    def measure(self, test_case: LLMTestCase, **_: object) -> float:
        raise NotImplementedError

    def is_successful(self) -> bool:
        return bool(self.success)

    @property
    def __name__(self) -> str:
        return "contains"


done = evaluate(
    [
        LLMTestCase(input=case["input"], actual_output="", expected_output=case["expect"])
        for case in cases
    ],
    [AnswerContains()],
    async_config=AsyncConfig(max_concurrent=int(parallel)),
    error_config=ErrorConfig(ignore_errors=True),  # without it, one refusal ends everything
)
print(json.dumps({"answered": sum(bool(result.success) for result in done.test_results)}))
