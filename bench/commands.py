"""The least that runs N commands: a bare asyncio loop, nothing stored, nothing ended for sure.

`commands.py COUNT PARALLEL COMMAND...` starts them, and reads what they print.
"""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE


async def run_all(count: int, parallel: int, command: list[str]) -> None:
    slots = asyncio.Semaphore(parallel)

    async def run() -> None:
        async with slots:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
            )
            await process.communicate()

    await asyncio.gather(*(run() for _ in range(count)))


if __name__ == "__main__":
    asyncio.run(run_all(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]))
