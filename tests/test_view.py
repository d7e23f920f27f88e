"""`paraval view` over HTTP: who gets in, what the pages show, and what their actions do."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import lxml.html
import pytest

from paraval.cli.commands.report import _open_browser
from paraval.report.contents import Contents
from paraval.runner.stored_runs import StoredRun
from paraval.store.labels import Labels
from paraval.store.store import Store
from paraval.view import server
from paraval.view.run_state import RunState
from paraval.view.server import Serving, serve
from tests.conftest import Paraval, WriteSuite
from tests.page_kit import PAYLOADS

SUITE = """
name: colors
cases:
  - {id: sky, input: What color is the sky?, expect: blue, tags: [nature]}
  - {id: grass, input: What color is grass?, expect: green, tags: [nature]}
  - {id: blood, input: What color is blood?, expect: red, tags: [body]}
  - {id: broken, input: crash, expect: red}
target: {python: "colors:answer"}
matrix: {mode: [plain, careful]}
repeats: 2
fail_under: 0.5
graders:
  - contains
  - {python: {function: "colors:short", name: short}}
"""
MODULE = """
import sys

def answer(case, variant):
    if case.input == "crash":
        raise RuntimeError("no such tool")
    print("thinking about", case.id, file=sys.stderr)
    known = {"sky": "blue", "grass": "green", "blood": "red"}
    return known[case.id] if variant["mode"] == "careful" or case.id == "sky" else "a long story"

def short(output, case):
    return {"passed": len(output.text) < 8, "reason": f"{len(output.text)} characters"}
"""


FOREIGN = ("img", "iframe", "object", "embed", "base", "video", "math", "mglyph", "animate")
"""Elements that none of our pages has."""


def paraval_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "paraval", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def words(self) -> str:
        """What a reader sees, roughly."""
        return " ".join(unescape(re.sub(r"<[^>]*>", " ", self.text)).split())


@dataclass
class Client:
    """A browser without a screen: it has the token's cookie."""

    serving: Serving
    cookie: str = ""

    def get(self, path: str, **headers: str) -> Answer:
        return self._request("GET", path, headers)

    def post(self, path: str, form: dict[str, str], **headers: str) -> Answer:
        own = {"Origin": f"http://127.0.0.1:{self.serving.port}"}
        content = {"Content-Type": "application/x-www-form-urlencoded"}
        return self._request("POST", path, {**own, **content, **headers}, urlencode(form))

    def _request(self, method: str, path: str, headers: dict[str, str], body: str = "") -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.serving.port, timeout=60)
        try:
            cookies = {"Cookie": self.cookie} if self.cookie else {}
            connection.request(method, path, body or None, {**cookies, **headers})
            response = connection.getresponse()
            text = response.read().decode()
            return Answer(response.status, dict(response.getheaders()), text)
        finally:
            connection.close()

    def enter(self) -> Answer:
        address = urlsplit(self.serving.address())
        answer = self.get(f"{address.path}?{address.query}")
        self.cookie = answer.headers["Set-Cookie"].partition(";")[0]
        return answer

    def news(self, path: str, until: Callable[[dict[str, str]], bool]) -> None:
        """Look for news until they are what is waited for."""
        end, seen = time.monotonic() + 60, ""
        while time.monotonic() < end:
            answer = self.get(f"{path}/news?{urlencode({'seen': seen})}")
            assert answer.status in (200, 204), answer.text
            if answer.status == 200:
                news = json.loads(answer.text)
                seen = news["seen"]
                if until(news["parts"]):
                    return
            time.sleep(0.1)
        raise AssertionError("it was not sent")


@contextmanager
def served(root: Path, port: int | None = None) -> Iterator[Client]:
    """The viewer in a thread, with a client that has its token."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        start = asyncio.run_coroutine_threadsafe(serve(Store(root), None, port), loop)
        serving = start.result(60)
        client = Client(serving)
        client.enter()
        yield client
        asyncio.run_coroutine_threadsafe(serving.close(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def colors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs of a suite: four cases, two variants, two repeats."""
    folder = tmp_path_factory.mktemp("colors")
    (folder / "suite.yaml").write_text(SUITE)
    (folder / "colors.py").write_text(MODULE)
    for _ in range(2):
        ended = paraval_in(folder, "run", "suite.yaml", "--store", "store", "--progress", "none")
        assert ended.returncode in (0, 1, 3), ended.stderr
    return folder


@pytest.fixture(scope="module")
def viewer(colors: Path) -> Iterator[Client]:
    with served(colors / "store") as client:
        yield client


@pytest.fixture(scope="module")
def run_id(colors: Path) -> str:
    return Store(colors / "store").find("last").id


def csrf_in(answer: Answer) -> str:
    found = re.search(r'name="csrf" value="(\w+)"', answer.text)
    assert found is not None, answer.text
    return found[1]


# ---- who gets in


def test_the_token_becomes_a_strict_cookie_and_leaves_the_address(viewer: Client) -> None:
    answer = viewer.enter()
    assert answer.status == 302
    assert answer.headers["Location"] == "/"
    cookie = answer.headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


def test_the_token_of_an_address_works_once(viewer: Client) -> None:
    address = urlsplit(viewer.serving.address())
    first, second = Client(viewer.serving), Client(viewer.serving)
    assert first.get(f"{address.path}?{address.query}").status == 302
    assert second.get(f"{address.path}?{address.query}").status == 403


def test_the_browser_is_opened_without_the_token_among_its_arguments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser, "open", opened.append)
    _open_browser("http://127.0.0.1:1/?token=secret", tmp_path)
    assert "secret" not in opened[0]
    page = Path(urlsplit(opened[0]).path)
    assert "http://127.0.0.1:1/?token=secret" in page.read_text()
    assert page.parent == tmp_path, "a folder that only its user can read"


def test_connections_of_strangers_end(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "UNKNOWN_FOR_S", 0.3)
    monkeypatch.setattr(server, "MOST_UNKNOWN", 5)
    held = [socket.create_connection(("127.0.0.1", viewer.serving.port)) for _ in range(9)]
    try:
        assert viewer.get("/").status == 200
        for connection in held:
            connection.settimeout(20)
            assert connection.recv(1) == b"", "closed by the viewer"
    finally:
        for connection in held:
            connection.close()


@pytest.mark.parametrize("path", ["/", "/news", "/static/view.js", "/compare", "/history"])
def test_without_the_token_there_is_no_page(viewer: Client, path: str) -> None:
    stranger = Client(viewer.serving)
    assert stranger.get(path).status == 403
    assert stranger.get(f"{path}?token=guessed").status == 403
    assert Client(viewer.serving, "paraval-view-1=guessed").get(path).status == 403


def test_another_host_is_refused_even_with_the_token(viewer: Client) -> None:
    for host in ("evil.example", f"evil.example:{viewer.serving.port}", ""):
        assert viewer.get("/", Host=host).status == 403
    assert viewer.get("/", Host="localhost").status == 403, "another name has a cookie of its own"
    assert viewer.get("/", Host=f"localhost:{viewer.serving.port}").status == 200


def test_another_origin_is_refused_even_with_the_token(viewer: Client, run_id: str) -> None:
    form = {"csrf": csrf_in(viewer.get(f"/runs/{run_id}/ask?do=failed")), "do": "failed"}
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"):
        assert viewer.post(f"/runs/{run_id}/do", form, Origin=origin).status == 403
        assert viewer.get("/", Origin=origin).status == 403
    no_token_of_a_form = {"do": "failed", "value": ""}
    assert viewer.post(f"/runs/{run_id}/do", no_token_of_a_form).status == 403


def test_every_page_forbids_all_but_its_own_scripts_and_styles(viewer: Client, run_id: str) -> None:
    for path in ("/", f"/runs/{run_id}", f"/runs/{run_id}/cases/0", "/runs/nothing"):
        headers = viewer.get(path).headers
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'; style-src 'self'; script-src 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
    report = viewer.get(f"/runs/{run_id}/report").headers["Content-Security-Policy"]
    assert "script-src" not in report
    assert "default-src 'none'" in report


def test_a_token_is_worth_nothing_to_another_viewer(viewer: Client, colors: Path) -> None:
    port = viewer.serving.port
    with served(colors / "store") as second:
        assert second.serving.port != port, "a second viewer picks another port"
        cookie = viewer.cookie.replace(str(port), str(second.serving.port))
        assert Client(second.serving, cookie).get("/").status == 403


@pytest.mark.parametrize("host", ["[", "127.0.0.1:99x", "evil.com@127.0.0.1:80", "127.0.0.1"])
def test_a_malformed_host_is_refused(viewer: Client, host: str) -> None:
    assert viewer.get("/", Host=host).status == 403


def test_odd_cookies_forms_and_paths_are_refused_or_stay_here(viewer: Client, run_id: str) -> None:
    assert Client(viewer.serving, f"paraval-view-{viewer.serving.port}=\xff").get("/").status == 403
    assert viewer.post(f"/runs/{run_id}/do", {"csrf": "é", "do": "failed"}).status == 403
    token = viewer.serving.address().partition("?")[2]
    assert viewer.get(f"//evil.example/?{token}").headers["Location"] == "/evil.example/"


# ---- pages


def test_the_list_of_runs_has_the_figures_of_the_report(
    viewer: Client, colors: Path, run_id: str
) -> None:
    words = viewer.get("/").words
    assert f"{run_id} colors done 16 66.7% 4" in words
    store = Store(colors / "store")
    info = store.find("last")
    summary = Contents(StoredRun(store, info)).summary
    state = RunState(Path(info.folder))
    state.refresh()
    assert state.whole.rate == pytest.approx(summary.pass_rate)
    for number, variant in enumerate(summary.variants):
        assert state.by_variant[number].rate == pytest.approx(variant.pass_rate)


def test_a_run_shows_its_verdict_its_variants_and_a_chip_for_every_trial(
    viewer: Client, run_id: str
) -> None:
    page = viewer.get(f"/runs/{run_id}")
    assert "Gate undecided" in page.words or "Gate passed" in page.words
    assert "careful 100%" in page.words
    assert "6 passed, 2 errors" in page.words
    assert page.text.count('class="chip ') == 16
    assert page.text.count('class="chip error"') == 4
    assert "What color is the sky?" in page.words
    assert "RuntimeError: no such tool" in page.words


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ({}, ["sky", "grass", "blood", "broken"]),
        ({"outcome": "wrong"}, ["grass", "blood"]),
        ({"outcome": "error"}, ["broken"]),
        ({"outcome": "unpassed"}, ["grass", "blood", "broken"]),
        ({"outcome": "pass", "tag": "body"}, ["blood"]),
        ({"grader": "short"}, ["grass", "blood"]),
        ({"grader": "short", "outcome": "pass"}, []),
        ({"q": "SKY"}, ["sky"]),
        ({"q": "long story"}, ["grass", "blood"]),
        ({"q": "100%_\\"}, []),
        ({"q": "no such tool"}, ["broken"]),
        ({"sort": "failures"}, ["broken", "grass", "blood", "sky"]),
        ({"outcome": "nonsense", "sort": "x", "page": "99"}, ["sky", "grass", "blood", "broken"]),
    ],
)
def test_filters_are_in_the_address_and_need_no_script(
    viewer: Client, run_id: str, query: dict[str, str], shown: list[str]
) -> None:
    page = viewer.get(f"/runs/{run_id}?{urlencode(query)}")
    found = re.findall(r'<a class="name" href="[^"]*">([^<]*)</a>', page.text)
    assert found == shown


def test_a_case_is_side_by_side_with_its_neighbors_and_its_files(
    viewer: Client, run_id: str
) -> None:
    page = viewer.get(f"/runs/{run_id}/cases/1")
    assert "What color is grass?" in page.words
    assert "a long story" in page.words
    assert "12 characters" in page.words
    base = f"/runs/{run_id}/cases"
    assert f'<a href="{base}/0" rel="previous">' in page.text
    assert f'<a href="{base}/2" rel="next">' in page.text
    assert f'<a href="{base}/3">previous' not in page.text
    (first, *_) = re.findall(rf'"(/runs/{run_id}/files/[^"]*/stderr)"', page.text)
    file = viewer.get(first)
    assert "thinking about grass" in file.text
    assert file.headers["Content-Type"].startswith("text/plain")
    assert viewer.get(f"{first}/../../../../run.db").status == 404


def test_the_next_case_is_the_next_of_the_filtered_list(viewer: Client, run_id: str) -> None:
    listed = viewer.get(f"/runs/{run_id}?outcome=wrong")
    (first, *_) = re.findall(r'<a class="name" href="([^"]*)">', listed.text)
    page = viewer.get(unescape(first))
    (following,) = re.findall(r'<a href="([^"]*)" rel="next">', page.text)
    assert viewer.get(unescape(following)).words.startswith("blood")
    assert f'href="/runs/{run_id}?outcome=wrong"' in page.text


def test_a_cost_that_is_partly_unknown_is_a_lower_bound(tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(
        "cases: [{id: priced}, {id: unpriced}]\ntarget: {python: 'spender:spend'}\n"
    )
    (tmp_path / "spender.py").write_text(
        "def spend(case):\n"
        "    known = {'cost_usd': 0.25} if case.id == 'priced' else {}\n"
        "    return {'text': 'x', 'usage': {'input_tokens': 5}, **known}\n"
    )
    paraval_in(tmp_path, "run", "suite.yaml", "--store", "store")
    assert "$0.25+" in paraval_in(tmp_path, "runs", "--store", "store").stdout
    with served(tmp_path / "store") as client:
        for path in ("/", f"/runs/{Store(tmp_path / 'store').find('last').id}"):
            assert "$0.25+" in client.get(path).words, path


def test_a_run_that_a_stranger_damaged_is_a_page_not_a_crash(
    colors: Path, tmp_path: Path, run_id: str
) -> None:
    store = shutil.copytree(colors / "store", tmp_path / "store")
    with closing(sqlite3.connect(store / "runs" / run_id / "run.db")) as connection:
        connection.execute("UPDATE trial SET case_ = 999")
        connection.commit()
    with served(store) as client:
        answer = client.get(f"/runs/{run_id}")
        assert answer.status == 500
        assert "damaged" in answer.words


def test_two_runs_a_history_and_the_whole_report_are_shown_with_a_way_back(
    viewer: Client, colors: Path, run_id: str
) -> None:
    before = Store(colors / "store").find("last~1").id
    compared = viewer.get(f"/compare?run={run_id}&run={before}")
    assert "no difference shown" in compared.words
    assert f'<a href="/runs/{before}">' in compared.text
    assert viewer.get(f"/compare?run={run_id}").status == 404
    assert "66.7%" in viewer.get("/history?suite=colors").words
    assert '<a href="/">paraval view</a>' in viewer.get(f"/runs/{run_id}/report").text


def test_what_does_not_exist_is_answered_with_a_sentence(viewer: Client, run_id: str) -> None:
    for path in (
        "/runs/20200101-000000-abcd",
        "/runs/..%2f..%2fetc",
        f"/runs/{run_id}/cases/99",
        f"/runs/{run_id}/files/0/1/patch",
        f"/runs/{run_id}/ask?do=fly",
        "/history?suite=none",
        "/nowhere",
    ):
        answer = viewer.get(path)
        assert answer.status == 404, path
        assert "Traceback" not in answer.text


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run in which every text that a stranger may write is an attack."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "hostile.py").write_text(
        f"""
PAYLOADS = {PAYLOADS!r}
def cases():
    return [dict(id=f"{{n}} {{text if n not in (18, 19, 26) else ''}}", input=text, expect=text,
                 tags=[text], description=text) for n, text in enumerate(PAYLOADS)]
def answer(case, variant):
    n = int(case.id.split()[0])
    if n % 5 == 4:
        raise RuntimeError(PAYLOADS[n])
    return PAYLOADS[n]
def judge(output, case):
    return {{"passed": False, "reason": output.text}}
"""
    )
    axis = [PAYLOADS[1], PAYLOADS[5]]
    suite = {
        "name": PAYLOADS[0],
        "cases": {"python": "hostile:cases"},
        "target": {"python": "hostile:answer"},
        "matrix": {"mode": axis},
        "graders": [{"python": {"function": "hostile:judge", "name": PAYLOADS[3]}}],
    }
    (folder / "suite.yaml").write_text(json.dumps(suite))
    ended = paraval_in(folder, "run", "suite.yaml", "--store", "store", "--progress", "none")
    assert ended.returncode == 0, ended.stderr
    return folder


def test_hostile_texts_are_escaped_on_every_page_and_in_every_update(hostile: Path) -> None:
    with served(hostile / "store") as client:
        info = Store(hostile / "store").find("last")
        suite, run = quote(info.suite, safe=""), f"/runs/{info.id}"
        paths = ["/", run, f"/history?suite={suite}", f"{run}/ask?do=failed", f"{run}/report"]
        paths += [f"{run}/cases/{number}" for number in range(len(PAYLOADS))]
        paths += [f"{run}?{urlencode({'q': text, 'tag': text})}" for text in PAYLOADS[:6]]
        pages = {path: client.get(path).text for path in paths}

        def keep(parts: dict[str, str]) -> bool:
            pages["news"] = "".join(["<div>", *parts.values(), "</div>"])
            return True

        client.news(run, keep)
    for path, text in pages.items():
        assert len(text) > 500, path
        for element in lxml.html.fromstring(text).iter("*"):
            assert element.tag not in FOREIGN, path
            assert not [name for name in element.attrib if str(name).startswith("on")], path
            assert "javascript:" not in (element.get("href") or element.get("action") or ""), path
            if element.tag == "script":
                assert element.get("src") == "/static/view.js", path


# ---- actions


def test_labels_are_saved_and_taken_back(viewer: Client, colors: Path, run_id: str) -> None:
    place = f"/runs/{run_id}/cases/1"
    form = {"csrf": csrf_in(viewer.get(place)), "trial": "4", "case": "1", "grader": "short"}
    saved = viewer.post(f"/runs/{run_id}/label", {**form, "label": "pass"})
    assert (saved.status, saved.headers["Location"]) == (303, f"{place}?said=label#trial-4")
    assert set(Labels(colors / "store").of("colors").values()) == {True}
    assert "Your verdict: short pass" in viewer.get(place).words
    viewer.post(f"/runs/{run_id}/label", {**form, "label": "none"})
    assert Labels(colors / "store").of("colors") == {}
    for wrong in ({"label": "maybe"}, {"grader": "other"}, {"trial": "99"}, {"case": "77"}):
        bad = viewer.post(f"/runs/{run_id}/label", {**form, "label": "fail", **wrong})
        assert bad.status == 404


def test_the_failed_cases_run_again_after_a_question(viewer: Client, colors: Path) -> None:
    store = Store(colors / "store")
    first = store.find("last~1")
    asked = viewer.get(f"/runs/{first.id}/ask?do=failed")
    assert f"paraval resume {first.id} --failed --store {colors}/store" in asked.words
    assert len(store.runs()) == 2, "asking starts nothing"
    form = {"csrf": csrf_in(asked), "do": "failed", "value": ""}
    done = viewer.post(f"/runs/{first.id}/do", form)
    assert (done.status, done.headers["Location"]) == (303, f"/runs/{first.id}?said=failed")
    until(lambda: store.find(first.id).resumed > first.resumed and not store.find(first.id).running)
    assert len(store.runs()) == 2, "the results take the place of the old ones"
    assert "What had failed runs again" in viewer.get(done.headers["Location"]).words


def test_what_cannot_start_is_explained(colors: Path, tmp_path: Path) -> None:
    folder = tmp_path / "moved"
    folder.mkdir()
    (folder / "suite.yaml").write_text(SUITE)
    (folder / "colors.py").write_text(MODULE)
    paraval_in(folder, "run", "suite.yaml", "--store", "store", "--progress", "none")
    (folder / "suite.yaml").write_text(SUITE.replace("graders:", "grades:"))
    with served(folder / "store") as client:
        run = f"/runs/{Store(folder / 'store').find('last').id}"
        form = {"csrf": csrf_in(client.get(f"{run}/ask?do=failed")), "do": "failed", "value": ""}
        answer = client.post(f"{run}/do", form)
        assert "exit code 2" in answer.words
        assert "unknown key 'grades'" in answer.words
        logs = folder / "store" / "view-logs"
        shutil.rmtree(logs)
        logs.write_text("in the way")
        answer = client.post(f"{run}/do", form)
        assert answer.status == 500
        assert "this cannot be done" in answer.words


# ---- a run that is in progress

GATED = """
name: gated
cases: [{id: a, expect: good}, {id: b, expect: good}, {id: c, expect: good}, {id: d, expect: good}]
target:
  command: [sh, -c, 'until [ -e "go-$0" ]; do sleep 0.05; done; cat "go-$0"', "{case.id}"]
limits: {parallel: 2}
graders: [equals]
fail_under: 1
"""


def until(what: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


@dataclass
class GatedRun:
    """A run whose trials wait until they may answer."""

    folder: Path
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        (self.folder / "suite.yaml").write_text(GATED)

    def start(self, *arguments: str) -> None:
        begin = arguments or ("run", "suite.yaml")
        command = [sys.executable, "-m", "paraval", *begin, "--store", "store"]
        before = self._sessions()
        with (self.folder / "run.log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        until(lambda: self._sessions() > before and self.store.find("last").running)

    def _sessions(self) -> int:
        return sum(1 + run.resumed for run in self.store.runs())

    @property
    def store(self) -> Store:
        return Store(self.folder / "store")

    def answer(self, case: str, text: str = "good") -> None:
        whole = self.folder / f"whole-{case}"
        whole.write_text(text)
        whole.rename(self.folder / f"go-{case}")

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait(60)

    def end(self) -> int:
        assert self.process is not None
        return self.process.wait(60)


@pytest.fixture
def gated(tmp_path: Path) -> Iterator[GatedRun]:
    run = GatedRun(tmp_path)
    yield run
    if run.process is not None and run.process.poll() is None:
        run.kill()


def test_a_running_run_fills_in_and_can_be_changed_and_stopped(gated: GatedRun) -> None:
    gated.start()
    run = f"/runs/{gated.store.find('last').id}"
    with served(gated.folder / "store") as client:

        def has(*texts: str) -> Callable[[dict[str, str]], bool]:
            return lambda parts: all(text in str(parts) for text in texts)

        client.news(run, has("2 running, 2 waiting", "of 2 slots", "2 may run"))
        gated.answer("a")
        gated.answer("b", "bad")
        client.news(run, has("1 passed, 1 failed", 'chip wrong"'))
        assert "running 2 of 4 50%" in client.get("/").words

        def act(do: str, value: str = "") -> str:
            asked = client.get(f"{run}/ask?{urlencode({'do': do, 'value': value})}")
            form = {"csrf": csrf_in(asked), "do": do, "value": value}
            done = client.post(f"{run}/do", form)
            assert done.status == 303, done.words
            return client.get(done.headers["Location"]).words

        assert "asked to change its parallelism" in act("parallel", "3")
        client.news(run, has("of 3 slots"))
        assert "asked to change its budget" in act("budget", "5")
        client.news(run, has("$0.00 of $5.00"))
        assert client.get(f"{run}/ask?do=parallel&value=0").status == 404
        assert client.get(f"{run}/ask?do=budget&value=free").status == 404
        act("cancel", "2")
        client.news(run, has('chip skip"'))
        assert "running 1 of 3 slots" in client.get(run).words
        client.news(f"{run}/cases/3", has("still running"))
        assert "asked to stop" in act("stop")
        gated.end()
        client.news(run, has("<dd>interrupted</dd>", ">Resume</button>"))
        words = client.get(run).words
        assert "Resume" in words
        assert "Stop the run" not in words


def test_the_command_prints_its_address_and_ends_with_ctrl_c(
    write: WriteSuite, paraval: Paraval, folder: Path
) -> None:
    write("suite.yaml", "cases: [{id: a, expect: a}]\ntarget: {command: [echo, a]}\n")
    assert paraval("run", "suite.yaml").returncode == 0
    command = [sys.executable, "-m", "paraval", "view", "last", "--no-open"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().strip())
        assert address.hostname == "127.0.0.1"
        assert address.path.startswith("/runs/")
        connection = http.client.HTTPConnection("127.0.0.1", address.port or 0, timeout=60)
        connection.request("GET", f"{address.path}?{address.query}")
        assert connection.getresponse().status == 302
        connection.close()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    missing = paraval("view", "nothing", "--no-open")
    assert missing.returncode == 2
    assert "no run 'nothing'" in missing.stderr
