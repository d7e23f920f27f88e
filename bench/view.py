"""Figures of the viewer: `python bench/view.py`.

The first screen of a large run, what following a live run takes of the engine's CPU, and how soon
an update is there. The live run calls a model and a judge on a simulated
server: 300 ms each, 30 trials in parallel.
"""

from __future__ import annotations

import http.client
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from html import unescape
from pathlib import Path
from urllib.parse import urlsplit

import page
import psutil
from figures import say

LARGE_CASES = 1_000
LIVE_CASES = 1_000
_LIVE = """\
name: live
models:
  sim: {provider: loopback, scenario: scenario.yaml}
  judge: {provider: loopback, scenario: scenario.yaml}
cases: {python: "live:cases"}
target: {chat: {model: sim, prompt: "{mode}: {input}"}}
matrix: {mode: [plain, careful]}
graders: [contains, {judge: {model: judge, rubric: Is it good?}}]
limits: {parallel: 30}
"""
_CASES = f"""\
def cases():
    return [{{"id": f"c{{n}}", "input": f"What is {{n}}?" + " Think." * 50, "expect": "a"}}
            for n in range({LIVE_CASES})]
"""
_SCENARIO = """\
latency: 0.3
models:
  sim: {answers: [{text: a good answer}]}
  judge: {answers: [{text: '{"reason": "it is good", "score": 0.9}'}]}
"""


class Tab:
    """A browser that shows a page and looks for its news."""

    def __init__(self, address: str) -> None:
        self._address = urlsplit(address)
        self._cookie = self._get(f"/?{self._address.query}")[0].partition(";")[0]

    def _get(self, path: str) -> tuple[str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self._address.port or 0, timeout=60)
        headers = {"Cookie": self._cookie} if "_cookie" in vars(self) else {}
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        found = response.getheader("Set-Cookie", ""), response.read().decode()
        connection.close()
        return found

    def load(self, path: str) -> float:
        """The seconds that it takes."""
        started = time.perf_counter()
        _, text = self._get(path)
        took = time.perf_counter() - started
        self._news = unescape(text.partition('data-news="')[2].partition('"')[0])
        return took

    def news(self) -> Iterator[dict[str, str]]:
        """What changed, looked for once a second, as the page does."""
        seen = ""
        while True:
            path = f"{self._news}{'&' if '?' in self._news else '?'}seen={seen}"
            if text := self._get(path)[1]:
                news = json.loads(text)
                seen = news["seen"]
                yield news["parts"]
            time.sleep(1)


@contextmanager
def viewer(folder: Path) -> Iterator[tuple[psutil.Process, Tab]]:
    command = [sys.executable, "-m", "paraval", "view", "--no-open"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield psutil.Process(process.pid), Tab(process.stdout.readline().strip())
        finally:
            process.kill()


def cpu_of(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def first_screen() -> None:
    with tempfile.TemporaryDirectory() as name:
        run = page.make_run(Path(name), LARGE_CASES)
        with viewer(Path(name)) as (process, tab):
            before = cpu_of(process)
            took = tab.load(f"/runs/{run.name}")
            used = cpu_of(process) - before
            again = min(tab.load(f"/runs/{run.name}") for _ in range(3))
    figure = f"{used:.2f} s CPU in {took:.2f} s, again {again:.2f} s"
    say("first screen of 10,000 trials", figure, "under 1 s of CPU", reached=used < 1)


def live() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "suite.yaml").write_text(_LIVE)
        (folder / "live.py").write_text(_CASES)
        (folder / "scenario.yaml").write_text(_SCENARIO)
        command = [sys.executable, "-m", "paraval", "run", "suite.yaml", "--progress", "none"]
        with (
            viewer(folder) as (process, tab),
            subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as engine,
        ):
            runs = folder / ".paraval" / "runs"
            while engine.poll() is None and not list(runs.glob("*/live.json")):
                time.sleep(0.1)
            (run,) = runs.iterdir()
            tab.load(f"/runs/{run.name}")
            watched = psutil.Process(engine.pid)
            first = last = (cpu_of(process), cpu_of(watched))
            gaps: list[float] = []
            threading.Thread(target=_listen, args=(tab, gaps), daemon=True).start()
            # Then it computes the verdict, as the engine does.
            while (run / "live.json").exists():
                last = (cpu_of(process), cpu_of(watched))
                time.sleep(0.2)
    viewed, worked = (after - before for before, after in zip(first, last, strict=True))
    figure = f"{viewed / worked:.1%} of the engine's CPU ({worked:.1f} s)"
    say("following a live run", figure, "under 2%", reached=viewed < 0.02 * worked)
    gap = statistics.quantiles(gaps, n=20)[-1] if len(gaps) > 1 else float("inf")
    say("updates of a busy run", f"every {gap:.2f} s (p95)", "within 1.5 s", reached=gap < 1.5)


def _listen(tab: Tab, gaps: list[float]) -> None:
    before = time.perf_counter()
    for _ in tab.news():
        gaps.append(time.perf_counter() - before)
        before = time.perf_counter()


if __name__ == "__main__":
    first_screen()
    live()
