"""A stand-in for `claude -p --output-format stream-json`: it does what its prompt says.

The prompt is words, done in their order: `say TEXT` (one word), `write FILE`, `call TOOL` (ends
well), `break TOOL` (gives an error), `begin TOOL` (no result), `leak TOOL` (its result is the key),
`status CODE` (an API error), `retry CODE`, `exit CODE`, `silent` (no result), `half` (half a result
line), `flood MEGABYTES`, `hang` (for ever, with a child in a session of its own), `stubborn`
(SIGTERM is ignored), `orphan` (leaves a child behind), `key` (prints its key), `turns` (cut off at
its turns), `later` (the rest is done when the session is resumed). Anything else is said as it is.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

LATER = Path(os.environ.get("CLAUDE_CONFIG_DIR", ".")) / "later"
SLEEPER = [sys.executable, "-c", "import time; time.sleep(300)"]


def tell(**event: Any) -> None:
    print(json.dumps(event), flush=True)


class FakeClaude:
    def __init__(self) -> None:
        self.said = ""
        self.calls = 0
        self.ends: dict[str, Any] = {"subtype": "success", "is_error": False}
        self.exit_code = 0

    def start(self) -> None:
        servers: dict[str, Any] = {}
        if "--mcp-config" in sys.argv:
            config = Path(sys.argv[sys.argv.index("--mcp-config") + 1])
            servers = json.loads(config.read_text())["mcpServers"]
        status = [{"name": name, "status": "connected"} for name in servers]
        tell(type="system", subtype="init", session_id="s-1", model="fake", mcp_servers=status)

    def do(self, words: list[str]) -> bool:
        """False: it ends without a result."""
        rest = iter(words)
        for word in rest:
            if word == "silent":
                return False
            if word == "later":
                LATER.parent.mkdir(parents=True, exist_ok=True)
                LATER.write_text(" ".join(rest))
                return True
            if word == "half":
                print('{"type":"result","subtype":"succ', end="", flush=True)
                return False
            if not self.behave(word, rest) and not self.misbehave(word, rest):
                self.say(word)
        return True

    def behave(self, word: str, rest: Iterator[str]) -> bool:
        """Whether the word was one for this."""
        match word:
            case "say":
                self.say(next(rest))
            case "write":
                Path(next(rest)).write_text(f"by {os.environ['PARAVAL_CASE']}\n")
            case "call" | "break":
                self.call(next(rest), failed=word == "break")
            case "begin":
                self.message({"type": "tool_use", "id": "begun", "name": next(rest), "input": {}})
            case "leak":
                self.call(next(rest), failed=False, content=os.environ["ANTHROPIC_API_KEY"])
            case "status":
                code = int(next(rest))
                self.ends = {"subtype": "success", "is_error": True, "api_error_status": code}
                self.exit_code, self.said = 1, f"API Error: {code} no"
            case "turns":
                self.ends = {"subtype": "error_max_turns", "is_error": True}
                self.exit_code = 1
            case "retry":
                tell(type="system", subtype="api_retry", error_status=int(next(rest)))
            case "exit":
                self.exit_code = int(next(rest))
            case _:
                return False
        return True

    def misbehave(self, word: str, rest: Iterator[str]) -> bool:
        match word:
            case "flood":
                sys.stdout.write(("x" * 1023 + "\n") * 1024 * int(next(rest)))
            case "hang":
                self.leave_a_child()
                time.sleep(300)
            case "orphan":
                self.leave_a_child()
            case "stubborn":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
            case "key":
                self.say(os.environ["ANTHROPIC_API_KEY"])
                print(os.environ["ANTHROPIC_API_KEY"], file=sys.stderr)
            case _:
                return False
        return True

    def leave_a_child(self) -> None:
        nothing = subprocess.DEVNULL
        subprocess.Popen(
            SLEEPER, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
        )

    def say(self, text: str) -> None:
        self.said = text
        self.message({"type": "text", "text": text})

    def call(self, tool: str, *, failed: bool, content: str = "x") -> None:
        self.calls += 1
        name = f"toolu_{self.calls}"
        self.message({"type": "tool_use", "id": name, "name": tool, "input": {}})
        result = {"type": "tool_result", "tool_use_id": name, "is_error": failed}
        tell(type="user", message={"role": "user", "content": [{**result, "content": content}]})

    def message(self, part: dict[str, Any]) -> None:
        self.calls += 1
        usage = {"input_tokens": 100, "output_tokens": 1}
        message = {"id": f"msg_{self.calls}", "content": [part], "usage": usage}
        tell(type="assistant", message=message, parent_tool_use_id=None)

    def end(self) -> None:
        tell(
            session_id="s-1",
            total_cost_usd=0.25,
            usage={"input_tokens": 100, "cache_read_input_tokens": 20, "output_tokens": 7},
            num_turns=2,
            result=self.said,
            type="result",
            **self.ends,
        )


def main() -> int:
    agent = FakeClaude()
    words = sys.stdin.read().split()
    if "--resume" in sys.argv:
        if not LATER.exists():
            print("No conversation found with session ID: s-1", file=sys.stderr)
            return 1
        words = LATER.read_text().split()
        LATER.unlink()
    agent.start()
    if agent.do(words):
        agent.end()
    return agent.exit_code


if __name__ == "__main__":
    sys.exit(main())
