"""Runs the check after every change, and tells the model what it says."""

import subprocess
import sys

from little import Conversation

MOST_TURNS = 5

conversation = Conversation(*sys.argv[1:])
for _ in range(MOST_TURNS):
    message = conversation.ask()
    if not message.get("tool_calls"):
        conversation.end(message["content"])
        break
    check = subprocess.run(
        [sys.executable, "-B", "check.py"], capture_output=True, text=True, check=False
    )
    conversation.tell(message, check.stdout + check.stderr)
else:
    conversation.end(f"I gave up after {MOST_TURNS} turns.")
