"""What both agents have: a model to ask, and a tool that edits files."""

from __future__ import annotations

import json
import os
import urllib.request
from pathlib import Path
from typing import Any

REPLACE = {
    "type": "function",
    "function": {
        "name": "replace",
        "description": "Replaces a text in a file by another.",
        "parameters": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in ("path", "old", "new")},
            "required": ["path", "old", "new"],
        },
    },
}


class Conversation:
    """A talk with the model, and the edits that it asked for."""

    def __init__(self, prompt: str, model: str) -> None:
        self.turns = 0
        self.edits = 0
        self._model = model
        self._messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]

    def ask(self) -> dict[str, Any]:
        """The model's next message; the edits in it are made."""
        body = {"model": self._model, "messages": self._messages, "tools": [REPLACE]}
        request = urllib.request.Request(
            f"{os.environ['OPENAI_BASE_URL']}/chat/completions",
            json.dumps(body).encode(),
            {
                "Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}",
                "Content-Type": "application/json",
            },
        )
        with urllib.request.urlopen(request) as answer:
            message: dict[str, Any] = json.load(answer)["choices"][0]["message"]
        self._messages.append(message)
        self.turns += 1
        for call in message.get("tool_calls") or []:
            replace(**json.loads(call["function"]["arguments"]))
            self.edits += 1
        return message

    def tell(self, message: dict[str, Any], result: str) -> None:
        """What became of the edits of a message."""
        for call in message.get("tool_calls") or []:
            told = {"role": "tool", "tool_call_id": call["id"], "content": result}
            self._messages.append(told)

    def end(self, answer: str) -> None:
        tools = {"replace": self.edits}
        print(json.dumps({"answer": answer, "turns": self.turns, "tools": tools}))


def replace(path: str, old: str, new: str) -> None:
    file = Path(path)
    file.write_text(file.read_text().replace(old, new, 1))
