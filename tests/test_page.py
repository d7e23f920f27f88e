"""The page of a run: what stands on it, how large it becomes, and what it reads from disk."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import re
import subprocess
import sys
import tomllib
import tracemalloc
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from lxml import html
from markupsafe import Markup

from paraval.records import PATCH, Case, Exchange, Outcome, Spend, Step, ToolCall
from paraval.report.page.cases import side_by_side
from paraval.report.page.page import write_page
from paraval.report.page.plots import quality_costs
from paraval.report.page.rendering import marked
from paraval.report.page.trials import logs_in, marked_words, patch_in
from paraval.report.report import Report
from tests.conftest import Paraval, WriteSuite
from tests.page_kit import (
    PAYLOADS,
    LargeRun,
    MadeRun,
    asking,
    end_of,
    hostile_run,
    plain_run,
    trial,
)

_VOID = frozenset({"meta", "input", "br", "hr", "img", "link", "base"})


def page_of(report: Report, **options: int) -> str:
    file = io.StringIO(newline="")
    write_page(report, file, **options)
    return file.getvalue()


def found(text: str, path: str) -> list[Any]:
    """What an XPath finds on a page."""
    there = html.document_fromstring(text).xpath(path)
    assert isinstance(there, list)
    return there


def words_of(text: str) -> str:
    """What a reader sees, on one line."""
    return " ".join(" ".join(found(text, "//body//text()")).split())


class Balanced(HTMLParser):
    """Fails where an element ends that did not begin last."""

    def __init__(self) -> None:
        super().__init__()
        self.stack: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag not in _VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.stack.pop() == tag, self.getpos()


# ---- what stands on it


def test_charts_of_time_and_cost_draw_judged_trials_and_count_timeouts_beside_them() -> None:
    ends = [
        ("a", Outcome.PASSED, 1.0, 0.01),
        ("b", Outcome.FAILED, 3.0, 0.03),
        ("c", Outcome.CRASHED, 0.001, 0.5),
        ("d", Outcome.TIMEOUT, 60.0, 0.5),
    ]
    trials = [
        trial(
            number,
            case,
            {"model": model},
            end_of(outcome, duration_s=seconds),
            spend=Spend(cost_usd=usd, calls=1),
        )
        for number, (model, (case, outcome, seconds, usd)) in enumerate(
            (model, end) for model in ("small", "large") for end in ends
        )
    ]
    report = Report(MadeRun(trials=trials))
    points = quality_costs(report.summary, report.book)
    assert [(one.rate, one.seconds) for one in points] == [(0.5, 2.0)] * 2
    assert [one.usd for one in points] == pytest.approx([0.02, 0.02])
    words = words_of(page_of(report))
    assert "Median and p95 exclude 2 timeouts (after 1 min 00 s or more)" in words


def test_a_stranger_reads_the_verdict_the_figures_and_every_case() -> None:
    text = page_of(plain_run(fail_under=0.5))
    words = words_of(text)
    headings = found(text, "//h1/text() | //h2/text()")
    assert headings == [
        "greetings",
        "Result",
        "Cases by variant",
        "Failures and errors",
        "Figures",
        "Quality against cost",
        "How many ran over time",
        "All cases",
    ]
    assert "Gate passed: 66.7% (4/6) even if 1 error was a failure, required 50%" in words
    assert "1 failed" in words
    assert "1 error (left out of the pass rate): 1 timeout" in words
    for told in (
        "31 January 2026, 12:00 UTC",
        "6 trials, at most 4 in parallel",
        "say two",
        '"words"',
    ):
        assert told in words


def test_the_answer_is_a_headline_with_a_mark_and_what_it_rests_on_below_it() -> None:
    """What is shown comes first, whatever order it was compared in."""
    passing = {"one": Outcome.PASSED, "like-one": Outcome.PASSED, "bad": Outcome.FAILED}
    trials = [
        trial(3 * case + column, f"case-{case}", {"model": model}, end_of(outcome))
        for case in range(12)
        for column, (model, outcome) in enumerate(passing.items())
    ]
    text = page_of(Report(MadeRun(trials=trials)))
    answers = found(text, "//ul[@class='answers']/li")
    told = [
        (one.get("class"), one.xpath("string(span)"), one.xpath("string(.//p)")) for one in answers
    ]
    assert told == [
        ("better", "▲", "one passes 100 points more than bad"),
        ("better", "▲", "like-one passes 100 points more than bad"),
        ("open", "○", "like-one vs one: no difference shown"),
    ]
    evidence = found(text, "//p[@class='evidence']/text()")
    assert all("95% CI " in one and "12 cases" in one for one in evidence)
    assert evidence[2].startswith("0 points, ")


def test_each_interval_stands_beside_its_sentence_and_all_share_an_axis() -> None:
    ends = {"one": Outcome.PASSED, "bad": Outcome.FAILED}
    trials = [
        trial(2 * case + column, f"case-{case}", {"model": model}, end_of(outcome))
        for case in range(12)
        for column, (model, outcome) in enumerate(ends.items())
    ]
    text = page_of(Report(MadeRun(trials=trials)))
    (answer,) = found(text, "//ul[@class='answers']/li")
    (plot,) = answer.xpath("figure//desc/text()")
    assert plot.startswith("+100 points, interval ")
    assert "worse" in found(text, "//div[@class='plot-axis']")[0].text_content()


def test_tiles_show_rate_cost_and_time_of_each_variant_the_best_first() -> None:
    trials = [
        trial(
            3 * case + column,
            f"case-{case}",
            {"model": f"m{column}", "mode": "same"},
            end_of(Outcome.PASSED if case >= 3 - column else Outcome.FAILED),
            spend=Spend(cost_usd=0.01, calls=1),
        )
        for case in range(4)
        for column in range(3)
    ]
    tiles = found(page_of(Report(MadeRun(trials=trials))), "//header/ul[@class='tiles']/li")
    told = [" ".join(" ".join(one.itertext()).split()) for one in tiles]
    assert [(one.xpath("string(p)"), one.get("title")) for one in tiles] == [
        ("m2", "m2 · same"),
        ("m1", "m1 · same"),
        ("m0", "m0 · same"),
    ]
    assert told[0].startswith("m2 75%")
    assert told[0].endswith("cost $0.040 median time 500 ms")
    assert "75% of 4 judged trials passed" in told[0]


def test_of_many_variants_eight_tiles_are_visible_and_the_others_are_folded() -> None:
    trials = [trial(n, "a", {"model": f"m{n}"}, end_of(Outcome.PASSED)) for n in range(11)]
    text = page_of(Report(MadeRun(trials=trials)))
    assert len(found(text, "//header/ul[@class='tiles']/li")) == 8
    assert len(found(text, "//header/details/ul/li")) == 3


def test_repeats_that_ended_alike_are_one_line_of_the_list() -> None:
    outcomes = [Outcome.FAILED, Outcome.FAILED, Outcome.PASSED, Outcome.FAILED]
    trials = [trial(n, "a", {}, end_of(one), repeat=n + 1) for n, one in enumerate(outcomes)]
    text = page_of(Report(MadeRun(trials=trials)))
    (line,) = found(text, "//ul[@class='unpassed']/li")
    assert " ".join(line.text_content().split()) == "✗ a failed 3 timesnot so"
    assert line.xpath("a/@href") == ["#trial-0"]


def test_of_many_wrong_answers_some_are_read_at_once_and_the_others_are_opened() -> None:
    trials = [trial(n, f"case-{n}", {}, end_of(Outcome.FAILED)) for n in range(50)]
    text = page_of(Report(MadeRun(trials=trials)))
    assert len(found(text, "//section[@id='unpassed']/ul/li")) == 20
    assert len(found(text, "//section[@id='unpassed']/details/ul/li")) == 30
    assert "30 more" in words_of(text)


def test_keys_in_sentences_are_set_apart_and_nothing_else_of_them_is_markup() -> None:
    assert marked("no `price` in `<b>`, one `") == (
        "no <code>price</code> in <code>&lt;b&gt;</code>, one `"
    )


def test_a_skipped_trial_says_why_and_speaks_of_no_error() -> None:
    end = end_of(Outcome.SKIPPED, why="early stop: decided after 9 of 20 cases")
    text = page_of(Report(MadeRun(trials=[trial(0, "late", {}, end)])))
    (told,) = found(text, "//details[@class='trial']")
    assert [heading.text for heading in told.iter("h4")] == ["Why"]
    assert told.get("open") is None


def test_a_trial_that_was_tried_again_tells_each_attempt() -> None:
    words = words_of(page_of(plain_run()))
    assert "! rate limited attempt 1 12:00:01 UTC · 500 ms" in words
    assert "too many requests" in words
    assert "! timeout attempt 2" in words


def test_every_link_leads_to_a_place_on_the_page_and_every_place_has_one_name() -> None:
    text = page_of(plain_run())
    ids, links = found(text, "//@id"), found(text, "//@href")
    assert len(ids) == len(set(ids))
    assert {"#case-0", "#trial-1", "#trial-3"} <= set(links)
    assert {link.removeprefix("#") for link in links} <= set(ids)


@pytest.mark.parametrize(
    ("report", "told"),
    [
        (Report(MadeRun()), "No trial ran"),
        (Report(MadeRun(trials=[trial(0, "only", {}, end_of(Outcome.PASSED))])), "100%"),
        (Report(MadeRun(trials=[trial(0, "x", {}, end_of(Outcome.CRASHED))])), "no rate"),
        (Report(MadeRun(trials=[trial(0, "x", {}, end_of(Outcome.SKIPPED))])), "Nothing was"),
        (plain_run(interrupted=True), "The run was interrupted"),
        (plain_run(running=True, ended_at=None), "in progress"),
        (plain_run(resumed=2, held_back=True), "trials pending; resumed 2 times"),
    ],
    ids=["nothing", "one", "errors", "skipped", "interrupted", "running", "held-back"],
)
def test_runs_of_every_kind_have_a_page(report: Report, told: str) -> None:
    text = page_of(report)
    Balanced().feed(text)
    assert told in words_of(text)


def test_a_case_whose_trials_are_not_together_is_continued_and_linked_once() -> None:
    ends = [("a", Outcome.PASSED), ("b", Outcome.FAILED), ("a", Outcome.FAILED)]
    trials = [
        trial(number, case, {}, end_of(outcome), repeat=number + 1)
        for number, (case, outcome) in enumerate(ends)
    ]
    asked = [Case(id="b", input="input of b"), Case(id="a", input="input of a")]
    text = page_of(Report(MadeRun(trials=trials, asked=asked)))
    assert text.count('id="case-0"') == text.count(">continued<") == 1
    assert text.count("\ninput of a") == text.count("\ninput of b") == 1


# ---- a case side by side


def columns_of(text: str) -> list[Any]:
    return found(text, "//div[@class='beside']/div")


def test_a_case_has_its_input_and_expectation_and_then_a_column_for_each_variant() -> None:
    ends = (("small", "Lyon, I think", Outcome.FAILED), ("large", "Paris", Outcome.PASSED))
    trials = [
        trial(n, "france", {"model": model}, end_of(outcome, text=text, why=f"why {model}"))
        for n, (model, text, outcome) in enumerate(ends)
    ]
    asked = [Case(id="france", input="capital?", expect="Paris")]
    text = page_of(Report(MadeRun(trials=trials, asked=asked)))
    assert found(text, "//div[@class='asked']/div/h3/text()") == ["Input", "Expected"]
    columns = columns_of(text)
    assert [(one.get("class"), one.xpath("string(h3)")) for one in columns] == [
        ("column wrong", "small"),
        ("column pass", "large"),
    ]
    told = [" ".join(one.text_content().split()) for one in columns]
    assert told[0].endswith("contains 0why small Answer Lyon, I think")
    assert told[1].endswith("Answer Paris")
    assert found(text, "//span[@class='snippet']/text()") == ["capital?"]


def test_repeats_share_a_column_and_the_first_that_failed_is_open() -> None:
    outcomes = [Outcome.PASSED, Outcome.CRASHED, Outcome.FAILED, Outcome.FAILED]
    trials = [
        trial(n, "a", {"model": "m"}, end_of(outcome), repeat=n + 1)
        for n, outcome in enumerate(outcomes)
    ]
    (column,) = columns_of(page_of(Report(MadeRun(trials=trials))))
    assert column.xpath("string(h3)") == "m 1 of 4 passed"
    opened = [one.get("open") is not None for one in column.xpath("details")]
    assert opened == [False, False, True, False]


def test_words_that_differ_from_the_expected_text_are_marked() -> None:
    expect = "The capital of Kenya is Nairobi."
    end = end_of(Outcome.FAILED, text="The capital of <b>Kenya</b> is Mombasa.")
    asked = [Case(id="kenya", input="?", expect=expect)]
    text = page_of(Report(MadeRun(trials=[trial(0, "kenya", {}, end)], asked=asked)))
    assert "is <del>Nairobi</del> <mark>Mombasa</mark>.</pre>" in text
    assert "<mark>&lt;b&gt;</mark>Kenya<mark>&lt;/b&gt;</mark>" in text
    assert "words that are not in the expected text" in words_of(text)


def test_answers_longer_than_what_is_expected_are_held_against_the_first_answer() -> None:
    texts = {"a": "After some thought it is Paris.", "b": "After some thought it is Lyon."}
    trials = [
        trial(n, "france", {"model": model}, end_of(Outcome.PASSED, text=text))
        for n, (model, text) in enumerate(texts.items())
    ]
    asked = [Case(id="france", input="?", expect="Paris")]
    text = page_of(Report(MadeRun(trials=trials, asked=asked)))
    first, second = columns_of(text)
    assert first.xpath(".//mark") == []
    assert second.xpath(".//mark/text()") == ["Lyon"]
    assert 'words that are not in the answer in "a"' in words_of(text)


@pytest.mark.parametrize(
    "text", ["  a b\n\nc, d!  ", "a_c\u00a0b\u2003c d e", "Größe 日本語 = 3.5 b"]
)
def test_marked_text_has_every_word_of_the_answer_in_order(text: str) -> None:
    pieces = marked_words(text, f"before {text.replace('b', 'other')} after")
    assert pieces
    own = "".join(piece.text for piece in pieces if piece.kind != "del")
    assert "".join(own.split()) == "".join(text.split())


def test_texts_that_are_unlike_or_too_long_are_not_marked() -> None:
    assert marked_words("a b c", "a b c") == ()
    assert marked_words("one two three four", "nothing of it") == ()
    long = " ".join(map(str, range(6_000)))
    assert marked_words(long, long + " more") is None
    asked = [Case(id="long", input="?", expect=long[:20_000] + "x")]
    end = end_of(Outcome.FAILED, text="a " * 6_000)
    text = page_of(Report(MadeRun(trials=[trial(0, "long", {}, end)], asked=asked)))
    assert "Too long to mark what differs: more than 5,000 words." in words_of(text)


def test_what_was_asked_is_folded_into_each_column_and_shown_once_for_a_case() -> None:
    trials = [
        trial(n, "a", {"model": model}, end_of(Outcome.PASSED), repeat=repeat)
        for n, (model, repeat) in enumerate((("x", 1), ("x", 2), ("y", 1), ("z", 1)))
    ]
    sent = {n: (asking("What?", model=str(one.variant["model"])),) for n, one in enumerate(trials)}
    sent[3] = (asking("What else?", model="z", temperature=0.5),)
    text = page_of(Report(MadeRun(trials=trials, sent=sent)))
    x, y, z = columns_of(text)
    (folded,) = x.xpath(".//details[@class='sent']")
    assert folded.get("open") is None
    assert " ".join(folded.text_content().split()) == (
        "What was asked openai x system Be brief. user What?"
    )
    assert not y.xpath(".//details[@class='sent']")
    assert 'Asked the same as in "x" (openai y)' in y.text_content()
    told = " ".join(z.text_content().split())
    assert "What was asked openai z; temperature 0.5 system Be brief. user What else?" in told


def test_transcripts_of_agents_and_replies_to_judges_are_folded_into_the_column() -> None:
    call = ToolCall(name="read", arguments={"path": "a.py"}, result="no such file", failed=True)
    request = {"agent": "claude-code", "model": "haiku", "prompt": "fix it", "mcp": ["search"]}
    agent = Exchange(request=request, steps=(Step(text="I look.", tool_calls=(call,)),))
    judge = asking("Is it good?", by="judge", model="j", reply="Score: 2")
    one = trial(0, "a", {}, end_of(Outcome.FAILED))
    text = page_of(Report(MadeRun(trials=[one], sent={0: (agent, judge)})))
    told = [
        " ".join(" ".join(each.itertext()).split())
        for each in found(text, "//details[@class='sent']")
    ]
    assert told == [
        "What was asked claude-code (haiku) prompt fix it tools search",
        'Transcript assistant I look. call read(path="a.py") result (failed) read no such file',
        "What judge asked openai j system Be brief. user Is it good?",
        "The reply to judge assistant Score: 2",
    ]


def test_without_room_for_what_was_asked_the_command_that_shows_it_is_there() -> None:
    one = trial(0, "a b", {}, end_of(Outcome.FAILED))
    report = Report(MadeRun(trials=[one], sent={0: (asking("word " * 2_000),)}))
    bare = len(page_of(Report(MadeRun(trials=[one]))))
    whole, short = page_of(report), page_of(report, largest=bare + 5_000)
    assert "word word" in whole
    assert "word word" not in short
    command = "paraval show 20260131-120000-abcd --case 'a b'"
    assert f"What was asked: {command}" in words_of(short)


def test_a_program_that_printed_its_answer_shows_it_once(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("the answer\n")
    end = replace(end_of(Outcome.PASSED, text="the answer"), artifacts={"stdout": "out"})
    report = Report(MadeRun(trials=[trial(0, "x", {}, end)], info_with={"folder": str(tmp_path)}))
    assert len(found(page_of(report), "//pre")) == 1


def test_markup_of_the_viewer_stands_below_a_trial() -> None:
    case = Case(id="a", input="what?", expect="x")
    one = trial(0, "a", {}, end_of(Outcome.FAILED))
    run = MadeRun().info()
    text = side_by_side(case, [one], run, below=lambda result: Markup(f"<p>{result.index}</p>"))
    assert "<pre>\nwhat?</pre>" in text
    assert "<p>0</p>" in text


# ---- nothing of others acts


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> str:
    return page_of(hostile_run(tmp_path_factory.mktemp("hostile")))


def test_a_hostile_run_makes_no_element_attribute_or_link(hostile: str) -> None:
    text = hostile
    parser = Balanced()
    parser.feed(text)
    assert parser.stack == []
    assert not parser.tags & {"script", "img", "iframe", "object", "embed", "form", "base", "link"}
    assert not found(text, "//@*[starts-with(name(), 'on')]")
    assert not found(text, "//@style")
    assert all(re.fullmatch(r"#[a-z]+(-\d+|-[a-z]+)?", link) for link in found(text, "//@href"))
    assert all(re.fullmatch(r"[a-z]+(-\d+|-[a-z]+)*", name) for name in found(text, "//@id"))
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]", text)


def test_every_payload_is_shown_as_it_was_written(hostile: str) -> None:
    answers = found(hostile, "//pre/text()")
    for payload in PAYLOADS[:18]:
        assert any(payload == answer.removeprefix("\n") for answer in answers), payload


def test_the_policy_allows_the_one_style_of_the_page_and_nothing_else() -> None:
    text = page_of(plain_run())
    (style,) = re.findall("<style>(.*?)</style>", text, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    (policy,) = re.findall('Content-Security-Policy" content="([^"]*)"', text)
    assert policy.replace("&#39;", "'") == (
        f"default-src 'none'; style-src 'sha256-{digest}'; img-src 'none';"
        " base-uri 'none'; form-action 'none'"
    )
    assert "url(" not in style
    assert "@import" not in style


# ---- how large it becomes


def test_a_page_that_would_be_too_large_tells_passed_trials_in_short_and_says_so() -> None:
    report = Report(LargeRun(number=650))
    text = page_of(report, largest=550_000)
    assert len(text) < 550_000
    in_full = [line.get("class") for line in found(text, "//details/summary/span[1]")]
    assert in_full.count("sign wrong") == 50
    assert 0 < in_full.count("sign pass") < 325
    assert "trials in one line only" in words_of(text)
    assert f"paraval report {report.run.id} -o report.jsonl" in words_of(text)


def test_a_page_of_10_000_trials_is_small_enough_for_browsers() -> None:
    assert len(page_of(Report(LargeRun(number=10_000))).encode()) < 4_000_000


def test_what_is_linked_is_there_even_where_nothing_else_has_room() -> None:
    text = page_of(Report(LargeRun(number=650)), largest=1)
    ids, links = set(re.findall(' id="([^"]+)"', text)), re.findall(' href="#([^"]+)"', text)
    assert set(links) <= ids
    assert "trials not at all" in words_of(text)
    Balanced().feed(text)


def test_long_answers_and_inputs_are_cut_and_the_rest_is_said() -> None:
    end = end_of(Outcome.FAILED, text="y" * 30_000)
    asked = [Case(id="long", input="z" * 25_000)]
    text = page_of(Report(MadeRun(trials=[trial(7, "long", {}, end)], asked=asked)))
    assert "y" * 20_001 not in text
    words = words_of(text)
    assert "10,000 more characters" in words
    assert "5,000 more characters" in words
    assert "paraval logs 20260131-120000-abcd --trial 7" in words


def test_a_page_is_written_without_holding_its_trials(tmp_path: Path) -> None:
    report = Report(LargeRun(number=400, answer="a" * 19_000))
    assert report.summary.trials == 400
    page_of(plain_run())  # templates are loaded once
    tracemalloc.start()
    try:
        with (tmp_path / "page.html").open("w", encoding="utf-8") as file:
            write_page(report, file, largest=25_000_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (tmp_path / "page.html").stat().st_size > 7_600_000
    assert peak < 2_600_000


def test_what_draws_the_page_is_loaded_only_for_a_page() -> None:
    code = "import sys, paraval.cli.main, paraval.report.report; print('jinja2' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_what_pages_are_made_of_is_in_the_package() -> None:
    """An installed paraval has no checkout to take templates and styles from."""
    root = Path(__file__).parent.parent
    package = root / "src" / "paraval"
    options = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    patterns = options["setuptools"]["package-data"]["paraval"]
    packed = {path for pattern in patterns for path in package.glob(pattern)}
    needed = {
        path
        for path in (package / "report").rglob("*")
        if path.is_file() and path.suffix != ".py" and "__pycache__" not in path.parts
    }
    assert len(needed) > 10
    assert needed <= packed


# ---- what it reads from disk


def test_logs_show_their_end_and_patches_their_beginning(tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"x" * 9_000 + b"the end")
    (tmp_path / "p").write_bytes(b"+first\n" + b"y" * 30_000)
    ((name, log),) = logs_in(str(tmp_path), {"tests.stdout": "out"})
    assert (name, log.left_out) == ("tests.stdout", "the last 4 kB")
    assert log.text.endswith("the end")
    patch = patch_in(str(tmp_path), {PATCH: "p"})
    assert patch is not None
    assert patch.text.startswith("+first\n")
    assert patch.left_out == "10 kB more"


@pytest.mark.parametrize(
    "path",
    ["link", "linked/secret", "pipe", "folder", "../outside", "/etc/passwd", "gone", "", "\0"],
)
def test_links_pipes_and_places_outside_are_not_read(path: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / "folder").mkdir(parents=True)
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "secret").write_text("secret")
    (run / "link").symlink_to(tmp_path / "outside")
    (run / "linked").symlink_to(tmp_path)
    os.mkfifo(run / "pipe")
    assert logs_in(str(run), {"stdout": path}) == ()
    assert patch_in(str(run), {PATCH: path}) is None


def test_a_patch_is_colored_by_line(tmp_path: Path) -> None:
    (tmp_path / "p").write_text("--- a\n+++ b\n@@ -1 +1 @@\n same\n-old\n-older\n+new\fpage\n")
    end = replace(end_of(Outcome.PASSED), artifacts={PATCH: "p"})
    text = page_of(
        Report(MadeRun(trials=[trial(0, "x", {}, end)], info_with={"folder": str(tmp_path)}))
    )
    (diff,) = found(text, "//pre[@class='diff']")
    kinds = [(span.get("class"), span.text) for span in diff]
    assert kinds == [
        ("head", "--- a\n+++ b\n"),
        ("at", "@@ -1 +1 @@\n"),
        ("del", "-old\n-older\n"),
        ("add", "+new\\x0cpage\n"),
    ]


def test_a_real_run_shows_what_was_asked_answered_and_logged(
    paraval: Paraval, write: WriteSuite, folder: Path
) -> None:
    write(
        "suite.yaml",
        """
        name: real
        cases:
          - {id: good, input: "salt & <pepper>", expect: pepper, tags: [smoke]}
          - {id: bad, input: nothing, expect: pepper}
        target:
          command: [sh, -c, "cat; echo a word on stderr >&2"]
          stdin: "{input}"
        graders: [contains]
        """,
    )
    done = paraval("run", "suite.yaml", "-o", "report.html", "--progress", "none")
    assert done.returncode == 0, done.stderr
    words = words_of((folder / "report.html").read_text(encoding="utf-8"))
    for told in ("salt & <pepper>", "smoke", "a word on stderr", "✗ failed", "✓ 1 passed"):
        assert told in words
    assert "How many ran over time" in words


def test_the_page_of_a_real_run_shows_what_a_model_was_asked(
    paraval: Paraval, write: WriteSuite, folder: Path
) -> None:
    write(
        "suite.yaml",
        """
        name: asked
        models: {one: {provider: loopback}, two: {provider: loopback}}
        cases: [{id: greeting, input: hello, expect: nothing}]
        target: {chat: {model: "{model}", system: "Answer politely.", prompt: "Say {input} twice"}}
        graders: [contains]
        """,
    )
    done = paraval("run", "suite.yaml", "--models", "all", "-o", "r.html", "--progress", "none")
    assert done.returncode == 0, done.stderr
    text = (folder / "r.html").read_text(encoding="utf-8")
    first, second = columns_of(text)
    assert "system Answer politely. user Say hello twice" in " ".join(first.text_content().split())
    assert 'Asked the same as in "one" (loopback two' in second.text_content()
