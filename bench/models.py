"""The figures over models, against the simulated server: `make bench`.

The server runs in a process of its own and its CPU is not counted; the reference is a bare aiohttp
loop that makes the same requests in the same run. Each line names what it should reach.
"""

from __future__ import annotations

import functools
import math
import random
import statistics
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ours
from figures import measure_chosen, say
from loads import (
    IDEAL_S,
    QUICK,
    SHALLOW_SILENT,
    SHALLOW_TOLD,
    SILENT,
    TOLD,
    Load,
    Seen,
    Used,
    empty_folder,
    say_if_busy,
    server,
    used_by,
)

HERE = Path(__file__).parent
MANY = Load(name="10,000 cases, 50 ms", count=10_000, parallel=200, scenario={"latency": 0.05})
STORM_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A load carried by paraval and by the bare loop: the least that several tries took."""

    load: Load
    bare_cpu_s: float
    bare_span_s: float
    cpu_s: float
    peak_rss_mb: float
    span_s: float

    @property
    def cpu_ms_a_case(self) -> float:
        return self.cpu_s / self.load.count * 1000

    @property
    def times_bare(self) -> float:
        return self.cpu_s / self.bare_cpu_s


def carried(
    load: Load, limits: Mapping[str, Any] | None = None, cache: str = "reuse"
) -> tuple[ours.Ours, Seen]:
    """One run of paraval in an empty store, with a server of its own; `limits`: what its registry
    says of them."""
    with empty_folder() as folder, server(load.scenario, folder) as running:
        entry = {"base_url": running.base_url, "limits": limits or {}}
        done = ours.run(load, {"sim": entry}, folder=folder, cache=cache)
        return done, running.seen()


def carried_bare(load: Load) -> tuple[Used, Seen]:
    with empty_folder() as folder, server(load.scenario, folder) as running:
        cases = load.write_cases(folder)
        script = [sys.executable, str(HERE / "bare.py"), running.base_url]
        used = used_by([*script, str(cases), str(load.parallel)], folder=folder)
        return used, running.seen()


def measured(load: Load, *, tries: int, limits: Mapping[str, Any] | None = None) -> Measured:
    # In turns, so that a noisy minute of the machine strikes both.
    pairs = [(carried_bare(load), carried(load, limits)) for _ in range(tries)]
    bare, runs = zip(*pairs, strict=True)
    assert all(done.lost == 0 for done, _ in runs)
    return Measured(
        load=load,
        bare_cpu_s=min(used.cpu_s for used, _ in bare),
        bare_span_s=min(seen.span_s for _, seen in bare),
        cpu_s=min(done.used.cpu_s for done, _ in runs),
        peak_rss_mb=max(done.used.peak_rss_mb for done, _ in runs),
        span_s=min(seen.span_s for _, seen in runs),
    )


@functools.cache
def quick_measured() -> Measured:
    # The account allows 100 concurrent calls, so the suite sets it: otherwise a run starts lower.
    return measured(QUICK, tries=5, limits={"concurrent": QUICK.parallel})


def say_memory(figure: Measured, most_mb: int) -> None:
    rss = figure.peak_rss_mb
    say("  peak RSS", f"{rss:.0f} MB", f"< {most_mb} MB", reached=rss < most_mb)


def quick() -> None:
    figure = quick_measured()
    ratio = figure.span_s / IDEAL_S[QUICK.name]
    name = "1,000 cases of 100 ms, 100 at once"
    value = f"{ratio:.3f} of the ideal 1.0 s (bare {figure.bare_span_s:.3f})"
    say(name, value, "<= 1.15", reached=ratio <= 1.15)
    value = f"{figure.times_bare:.2f} x ({figure.cpu_s:.2f} s, bare {figure.bare_cpu_s:.2f} s)"
    say("  CPU against a bare loop", value, "<= 2 x", reached=figure.times_bare <= 2)
    say_memory(figure, 90)
    _, seen = carried(QUICK)
    print(f"{'':8}   the same, limit not set: {seen.span_s:.3f} of the ideal 1.0 s")


def cache() -> None:
    """What it costs to keep every answer: the defaults against a run that keeps none."""
    runs = [(carried(QUICK), carried(QUICK, cache="off")) for _ in range(7)]
    kept, not_kept = (statistics.median(run[i][1].span_s for run in runs) for i in (0, 1))
    ratio = kept / not_kept
    value = f"{ratio:.3f} x ({kept:.3f} s, without {not_kept:.3f} s)"
    say("1,000 cases of 100 ms, answers kept", value, "<= 1.05 x", reached=ratio <= 1.05)
    kept, not_kept = (statistics.median(run[i][0].used.cpu_s for run in runs) for i in (0, 1))
    say("  CPU", f"{kept / not_kept:.3f} x ({kept:.2f} s, without {not_kept:.2f} s)")


def requests() -> None:
    """What it costs to store every request: the defaults against a run that stores none."""
    runs = [(requests_cpu_s(stores=True), requests_cpu_s(stores=False)) for _ in range(7)]
    stored, not_stored = (statistics.median(run[i] for run in runs) for i in (0, 1))
    ratio = stored / not_stored
    value = f"{ratio:.3f} x ({stored:.2f} s, without {not_stored:.2f} s)"
    say("1,000 cases, requests stored: CPU", value, "<= 1.10 x", reached=ratio <= 1.10)


def requests_cpu_s(*, stores: bool) -> float:
    with empty_folder() as folder, server(QUICK.scenario, folder) as running:
        entry = {"base_url": running.base_url}
        done = ours.run(QUICK, {"sim": entry}, folder=folder, stores_requests=stores)
        assert done.lost == 0
        return done.used.cpu_s


def many() -> None:
    figure = measured(MANY, tries=1)
    ratio = figure.cpu_ms_a_case / quick_measured().cpu_ms_a_case
    name = "10,000 cases of 50 ms, 200 at once"
    value = f"{figure.cpu_ms_a_case:.2f} ms CPU a case, {ratio:.2f} x"
    say(name, value, "<= 1.2 x that of 1,000", reached=ratio <= 1.2)
    say_memory(figure, 250)
    print(f"{'':8}   CPU against a bare loop: {figure.times_bare:.2f} x")


def say_goodput(load: Load, *, goodput: float, refusals: float) -> None:
    done, seen = carried(load)
    say_shares(load, done, seen, goodput=goodput, refusals=refusals)


def say_shares(
    load: Load, done: ours.Ours, seen: Seen, *, goodput: float, refusals: float, run: str = ""
) -> None:
    share, refused = IDEAL_S[load.name] / seen.span_s, seen.refused / load.count
    value = f"goodput {share:.3f} ({seen.span_s:.2f} s)"
    say(load.name + run, value, f">= {goodput:.2f}", reached=share >= goodput)
    value = f"{refused:.1%} ({seen.refused})"
    say("  refusals", value, f"<= {refusals:.1%}", reached=refused <= refusals)
    say("  trials lost", str(done.lost), "0", reached=done.lost == 0)


def told() -> None:
    say_goodput(TOLD, goodput=0.95, refusals=0.005)


def silent() -> None:
    say_goodput(SILENT, goodput=0.90, refusals=0.05)


def shallow() -> None:
    """A bucket that is soon empty: every burst of starts is refused."""
    say_goodput(SHALLOW_TOLD, goodput=0.97, refusals=0.005)
    load = SHALLOW_SILENT
    with empty_folder() as folder, server(load.scenario, folder) as running:
        models = {"sim": {"base_url": running.base_url}}
        done = ours.run(load, models, folder=folder)
        say_shares(load, done, running.seen(), goodput=0.92, refusals=0.02)
        running.reset()
        done = ours.run(load, models, folder=folder, cache="refresh")
        say_shares(load, done, running.seen(), goodput=0.95, refusals=0.005, run=", second run")


def beside(storm: dict[str, Any]) -> tuple[ours.Ours, Seen, Seen]:
    """A calm account beside one that may have a storm; their slots are their own, so that the calm
    one cannot gain by what the other leaves."""
    load = Load(
        name="two accounts",
        count=600,
        parallel=40,
        scenario={
            "latency": 0.5,
            "accounts": {"calm": {"key": "calm-key"}, "other": {"key": "other-key", **storm}},
        },
    )
    with empty_folder() as folder, server(load.scenario, folder) as running:
        entries = {
            name: {
                "base_url": running.base_url,
                "account": name,
                "api_key_env": f"{name}_key".upper(),
                "limits": {"concurrent": 20},
            }
            for name in ("calm", "other")
        }
        keys = {"CALM_KEY": "calm-key", "OTHER_KEY": "other-key"}
        done = ours.run(load, entries, folder=folder, keys=keys)
        return done, running.seen("calm"), running.seen("other")


def storm() -> None:
    _, before, _ = beside({})
    done, during, other = beside({"storm": {"for_s": STORM_S}})
    speed = before.span_s / during.span_s
    name = "two accounts, one in a storm of 60 s"
    value = f"the other at {speed:.3f} of its speed"
    say(name, value, ">= 0.95", reached=speed >= 0.95)
    say("  trials lost", str(done.lost), "0", reached=done.lost == 0)
    late_s = other.span_s - STORM_S - before.span_s
    say("  requests refused", f"{other.refused}; its end {late_s:+.1f} s after storm and work")


def history() -> None:
    draw = random.Random(7)
    latencies = [draw.lognormvariate(math.log(0.5), 1.0) for _ in range(200)]
    rules = [{"match": rf"^Question {i}\.", "seconds": s} for i, s in enumerate(latencies)]
    load = Load(name="lognormal", count=200, parallel=20, scenario={"latency": rules})
    bound = max(*latencies, sum(latencies) / load.parallel)
    spans = []
    with empty_folder() as folder, server(load.scenario, folder) as running:
        for _ in range(2):
            running.reset()
            models = {"sim": {"base_url": running.base_url}}
            ours.run(load, models, folder=folder, cache="refresh")
            spans.append(running.seen().span_s)
    first, second = (span / bound for span in spans)
    name = "200 lognormal cases, 20 concurrent, second run"
    value = f"{second:.3f} of the bound (first {first:.2f})"
    say(name, value, "<= 1.08", reached=second <= 1.08)


FIGURES = {
    "quick": quick,
    "cache": cache,
    "requests": requests,
    "many": many,
    "told": told,
    "silent": silent,
    "shallow": shallow,
    "storm": storm,
    "history": history,
}

if __name__ == "__main__":
    say_if_busy()
    measure_chosen(__doc__, FIGURES)
