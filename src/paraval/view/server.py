"""The local server of `paraval view`: who may use it, and which page is where.

It listens on the loopback address only. Every request needs the token that the printed address
contains, must name this machine as its host, and must not come from a page of another origin.
"""

from __future__ import annotations

import asyncio
import hmac
import io
import os
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from urllib.parse import urlencode

from aiohttp import web
from markupsafe import Markup, escape

from paraval.errors import ParavalError, RequestError, StoreError
from paraval.plain_files import PlainFileError, open_plain_file
from paraval.records import RunInfo
from paraval.report.compare.compare_html import versus_page
from paraval.report.compare.two_runs import ComparisonQuestion
from paraval.report.history.history_formats import history_page
from paraval.report.page.page import MARKS, write_page
from paraval.report.page.rendering import policy, style
from paraval.report.report import Report
from paraval.runner.comparisons import SideFinder, held_against
from paraval.runner.stored_runs import (
    InStore,
    history_of,
    order,
)
from paraval.store.connection import RUN_FILE, fingerprint, has_run
from paraval.store.folder import is_run_id
from paraval.store.reader import RunTally
from paraval.store.store import Store
from paraval.text.words import counted
from paraval.view.actions import Actions, notice_of
from paraval.view.case_page import case_body
from paraval.view.pages import HERE, ListedRun, RunPage, render
from paraval.view.run_state import CaseFilter, RunState, neighbors

HOST = "127.0.0.1"
PORT = 8765
_PORTS_TRIED = 50
_NAMES = ("127.0.0.1", "localhost")
_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self';"
    " form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer`, browsers would not name the origin of our own forms.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_MOST_RUNS = 50
_HISTORY_RUNS = 20
_MOST_FOR_VERDICT = 1_000
"""Trials. The verdict of a larger run follows when it is ready: the list does not wait for it."""
_PAGE_FIRST_S = 0.5
_RENEWED_S = 5.0
_MOST_KEPT = 8
"""Runs whose state stays in memory."""
_LARGEST_FILE = 16 << 20
_LARGEST_FORM = 64 << 10

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


UNKNOWN_FOR_S = 10.0
"""How long a connection may last without a request of somebody who is let in ..."""
MOST_UNKNOWN = 64
"""... and how many of those there may be."""


class Gate:
    """Lets in who has a token, from this machine and this origin. A token of an address works once:
    it becomes a cookie."""

    def __init__(self) -> None:
        # Others each time: what leaked is worth nothing after a restart.
        self._session = secrets.token_urlsafe(32)
        self._tokens: set[str] = set()
        self._unknown: dict[web.RequestHandler, None] = {}
        """Connections without a request of somebody who was let in."""
        self.csrf = hmac.new(self._session.encode(), b"csrf", "sha256").hexdigest()

    def token(self) -> str:
        """For an address."""
        token = secrets.token_urlsafe(32)
        self._tokens.add(token)
        return token

    def connections(self, server: web.Server) -> Callable[[], asyncio.Protocol]:
        """What makes the connections of a server, and ends those of strangers."""

        def made() -> asyncio.Protocol:
            connection = server()
            self._unknown[connection] = None
            loop = asyncio.get_running_loop()
            loop.call_later(UNKNOWN_FOR_S, self._end, connection)
            if len(self._unknown) > MOST_UNKNOWN:
                # Not at once: of many that come together, none has a transport yet.
                loop.call_soon(loop.call_soon, self._end, next(iter(self._unknown)))
            return connection

        return made

    def _end(self, connection: web.RequestHandler) -> None:
        if connection in self._unknown:
            del self._unknown[connection]
            connection.force_close()
            if connection.transport is not None:
                connection.transport.close()

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = await self._checked(request, handler)
        except web.HTTPException as error:
            response = web.Response(status=error.status, text=f"{error.reason}\n")
        except ParavalError as error:
            response = _problem(error)
        except ConnectionError:
            raise  # The tab is gone.
        except OSError as error:
            # A full disk, or a folder that may not be written.
            response = _problem(StoreError(f"this cannot be done: {error}"))
        if not response.prepared:
            for name, value in {**_HEADERS, "Content-Security-Policy": _POLICY}.items():
                response.headers.setdefault(name, value)
        return response

    async def _checked(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        host = request.headers.get("Host", "")
        name, _, port = host.partition(":")
        if name not in _NAMES or not (port.isascii() and port.isdigit()):
            return _refused("This host name is not served here.")
        origin = request.headers.get("Origin")
        is_own = origin == f"http://{host}"
        if (origin is not None or request.method != "GET") and not is_own:
            return _refused("This request comes from a page of another origin.")
        if request.method not in ("GET", "POST"):
            raise web.HTTPMethodNotAllowed(request.method, ("GET", "POST"))
        # Cookies are shared by all ports of a host: each viewer has a name of its own.
        cookie = f"paraval-view-{port}"
        if request.method == "GET" and (token := request.query.get("token")) in self._tokens:
            self._tokens.discard(token)
            # The token leaves the address, and with it the history and the screen.
            query = {name: value for name, value in request.query.items() if name != "token"}
            # One slash: two would begin the name of another host.
            place = request.rel_url.with_path(f"/{request.path.lstrip('/')}").with_query(query)
            response = web.Response(status=302, headers={"Location": str(place)})
            response.set_cookie(cookie, self._session, httponly=True, samesite="Strict", path="/")
            return response
        if not self._is_let_in(request.cookies.get(cookie)):
            return _refused(
                "Open the address that `paraval view` printed: it has a token, which works once."
            )
        self._unknown.pop(request.protocol, None)
        if request.method == "POST":
            form = await request.post()
            if not hmac.compare_digest(str(form.get("csrf", "")).encode(), self.csrf.encode()):
                return _refused("This form is not of this page. Load the page again.")
        return await handler(request)

    def _is_let_in(self, cookie: str | None) -> bool:
        # A cookie may be any bytes.
        told = (cookie or "").encode(errors="surrogateescape")
        return hmac.compare_digest(told, self._session.encode())


def _refused(why: str) -> web.Response:
    return web.Response(status=403, text=f"{why}\n")


def _problem(error: ParavalError) -> web.Response:
    page = render(
        "message.html", heading="Not possible", text=error.message, hint=error.hint, detail=""
    )
    return _html(page, status=404 if isinstance(error, RequestError) else 500)


def _html(page: str, *, status: int = 200) -> web.Response:
    # Names and answers may contain what no file can: lone surrogates.
    body = str(page).encode(errors="replace")
    return web.Response(body=body, status=status, content_type="text/html", charset="utf-8")


class Viewer:
    """The pages of one store."""

    def __init__(self, store: Store, opened: RunInfo | None) -> None:
        self._store = store
        # A run elsewhere can be viewed by its folder.
        self._folders = {} if opened is None else {opened.id: Path(opened.folder)}
        self._states: dict[Path, tuple[RunState, asyncio.Lock]] = {}
        self._verdicts: dict[str, tuple[str | None, asyncio.Task[Markup]]] = {}
        self._tallies: dict[str, tuple[str, ListedRun]] = {}
        self.gate = Gate()
        self._actions = Actions(store, self.gate.csrf)

    def app(self) -> web.Application:
        app = web.Application(middlewares=[self.gate.check], client_max_size=_LARGEST_FORM)
        run = r"/runs/{id}"
        app.router.add_routes(
            [
                web.get("/", self._runs),
                web.get("/news", self._runs_news),
                web.get("/history", self._history),
                web.get("/compare", self._compare),
                web.get("/static/{name}", _static),
                web.get(run, self._run),
                web.get(f"{run}/news", self._run_news),
                web.get(f"{run}/report", self._report),
                web.get(run + r"/cases/{number:\d{1,8}}", self._case),
                web.get(run + r"/cases/{number:\d{1,8}}/news", self._case_news),
                web.get(run + r"/files/{trial:\d{1,8}}/{attempt:\d{1,8}}/{name}", self._file),
                web.get(f"{run}/ask", self._ask),
                web.post(f"{run}/do", self._do),
                web.post(f"{run}/label", self._label),
            ]
        )
        return app

    def _info(self, run_id: str) -> RunInfo:
        return self._store.find(str(self._folder(run_id)))

    def _folder(self, run_id: str) -> Path:
        folder = self._folders.get(run_id, self._store.runs_folder / run_id)
        if not is_run_id(run_id) or not has_run(folder):
            raise RequestError("there is no such run", hint="it may have been removed")
        return folder

    # ---- the list of runs

    def _listed(self) -> tuple[dict[str, ListedRun], int]:
        runs = self._store.runs()
        shown = {f"run-{info.id}": self._tallied(info) for info in runs[:_MOST_RUNS]}
        return shown, len(runs) - len(shown)

    def _tallied(self, info: RunInfo) -> ListedRun:
        mark = fingerprint(Path(info.folder) / RUN_FILE)
        known = self._tallies.get(info.id)
        if known is not None and known[0] == mark and not info.running:
            return known[1]
        try:
            with self._store.reader(info) as reader:
                listed = ListedRun(info=info, tally=reader.tally(), is_race=reader.grows())
        except ParavalError:
            # Removed or damaged since it was listed; its page says so.
            return ListedRun(info=info, tally=RunTally(outcomes={}, pass_rate=None, usd=None))
        if mark is not None:
            self._tallies[info.id] = (mark, listed)
        return listed

    async def _runs(self, _request: web.Request) -> web.StreamResponse:
        runs, older = await asyncio.to_thread(self._listed)
        return _html(
            render(
                "runs.html",
                rows=_joined(one.row() for one in runs.values()),
                older=f"{counted(older, 'older run')} not shown" if older else "",
                news="/news",
            )
        )

    async def _runs_news(self, request: web.Request) -> web.StreamResponse:
        runs, _ = await asyncio.to_thread(self._listed)
        rows = _joined(one.row() for one in runs.values())
        return _news(request, f"{hash(rows)}", lambda: {"rows": rows})

    # ---- one run

    async def _state_of(self, request: web.Request) -> RunState:
        """The state of the run, with what changed since it was read last."""
        folder = self._folder(request.match_info["id"])
        known = self._states.pop(folder) if folder in self._states else None
        state, lock = known or (RunState(folder), asyncio.Lock())
        self._states[folder] = (state, lock)
        for old in list(self._states)[:-_MOST_KEPT]:
            del self._states[old]
        async with lock:
            # All of it takes long; later changes are read in the loop.
            read = state.refresh
            if await asyncio.to_thread(read) if state.version == 0 else read():
                state.version += 1
        return state

    async def _run(self, request: web.Request) -> web.StreamResponse:
        state = await self._state_of(request)
        info = state.info
        if info is None or self._store.grows(info):
            raise RequestError(
                "the viewer shows runs of suites and tests, not races",
                hint=f"see it with: paraval report {request.match_info['id']}",
            )
        wanted = CaseFilter.from_query(request.query)
        news = request.rel_url.with_path(f"{request.path}/news", keep_query=True)
        page, parts = await self._parts(state, wanted)
        return _html(
            render(
                "run.html",
                run=info,
                parts=parts,
                choices=list(page.choices()),
                query=wanted.query(),
                earlier=await asyncio.to_thread(self._earlier, info),
                news=str(news),
                seen=self._seen(state),
                notice=notice_of(request.query.get("said", "")),
            )
        )

    async def _parts(self, state: RunState, wanted: CaseFilter) -> tuple[RunPage, dict[str, str]]:
        """The parts that change while it runs, by the ids of their elements."""
        info, verdict = state.info, await self._verdict(state)
        assert info is not None
        page = RunPage(state, wanted, await _with_text(state, wanted))
        actions = render("actions.html", run=info, actions=list(self._actions.offered(info, state)))
        return page, {**page.parts(verdict), "actions": actions}

    def _seen(self, state: RunState) -> str:
        """Tells what a page was rendered from; no other viewer has the same. While it runs, times
        on the page are renewed now and then."""
        renewed = int(time.monotonic() / _RENEWED_S) if state.worked_on else ""
        return f"{id(self)}-{state.version}-{renewed}"

    async def _run_news(self, request: web.Request) -> web.StreamResponse:
        state = await self._state_of(request)
        if request.query.get("seen") == (seen := self._seen(state)):
            return web.Response(status=204)
        _, parts = await self._parts(state, CaseFilter.from_query(request.query))
        return _news(request, seen, lambda: parts)

    async def _verdict(self, state: RunState) -> Markup:
        """The gate's sentence; empty while the run goes on."""
        if state.worked_on or state.info is None:
            return Markup("")
        mark = fingerprint(state.folder / RUN_FILE)
        known = self._verdicts.get(state.folder.name)
        if known is None or known[0] != mark:
            task = asyncio.create_task(self._judge(state, state.info))
            known = self._verdicts[state.folder.name] = (mark, task)
        if known[1].done() or len(state.trials) <= _MOST_FOR_VERDICT:
            return await asyncio.shield(known[1])
        return render("verdict.html", verdict="unknown", mark="…", sentence="Computing the verdict")

    async def _judge(self, state: RunState, info: RunInfo) -> Markup:
        if len(state.trials) > _MOST_FOR_VERDICT:
            # The page comes first.
            await asyncio.sleep(_PAGE_FIRST_S)
        verdict = await asyncio.to_thread(self._judged, info)
        state.version += 1
        return verdict

    def _judged(self, info: RunInfo) -> Markup:
        try:
            with self._store.reader(info) as reader:
                gate = Report(reader, InStore(self._store, info)).gate
        except ParavalError as error:
            return render("verdict.html", verdict="unknown", mark="?", sentence=error.message)
        return render(
            "verdict.html",
            verdict=gate.verdict.value,
            mark=MARKS[gate.verdict],
            sentence=gate.sentence,
        )

    def _earlier(self, info: RunInfo) -> str | None:
        """The suite's run before this one."""
        runs = self._store.runs()
        before = (one for one in runs if one.suite == info.suite and order(one) < order(info))
        return next((one.id for one in before if not self._store.grows(one)), None)

    # ---- a case

    async def _case(self, request: web.Request) -> web.StreamResponse:
        state, info, number = await self._case_of(request)
        wanted = CaseFilter.from_query(request.query)
        listed = wanted.select(state, await _with_text(state, wanted))
        body = await asyncio.to_thread(case_body, self._store, info, number, csrf=self.gate.csrf)
        return _html(
            render(
                "case.html",
                run=info,
                case=state.cases[number],
                neighbors=list(neighbors(listed, number)),
                query=urlencode(wanted.query()),
                body=body,
                news=f"{request.path}/news" if state.worked_on else "",
                seen=str(state.cases[number].version),
                notice=notice_of(request.query.get("said", "")),
            )
        )

    async def _case_of(self, request: web.Request) -> tuple[RunState, RunInfo, int]:
        state = await self._state_of(request)
        number = int(request.match_info["number"])
        if state.info is None or number >= len(state.cases):
            raise RequestError("there is no such case in this run")
        return state, state.info, number

    async def _case_news(self, request: web.Request) -> web.StreamResponse:
        """The case again, if one of its trials started or ended."""
        state, info, number = await self._case_of(request)
        seen = str(state.cases[number].version)
        if request.query.get("seen") == seen:
            return web.Response(status=204)
        body = await asyncio.to_thread(case_body, self._store, info, number, csrf=self.gate.csrf)
        return _news(request, seen, lambda: {"case-body": body})

    async def _file(self, request: web.Request) -> web.StreamResponse:
        wanted = request.match_info
        info = self._info(wanted["id"])
        with self._store.reader(info) as reader:
            attempts = list(reader.attempts(index=int(wanted["trial"])))
        results = [one.result for one in attempts if one.number == int(wanted["attempt"])]
        path = results[0].artifacts.get(wanted["name"]) if results and results[0] else None
        if path is None:
            raise RequestError("there is no such file")
        try:
            descriptor = open_plain_file(path, within=info.folder)
        except PlainFileError as error:
            raise RequestError("the file cannot be read", hint=str(error)) from error
        with os.fdopen(descriptor, "rb") as file:
            body = file.read(_LARGEST_FILE)
        return web.Response(body=body, content_type="text/plain", charset="utf-8")

    # ---- pages of the report, with a way back

    async def _report(self, request: web.Request) -> web.StreamResponse:
        info = self._info(request.match_info["id"])

        def written() -> str:
            file = io.StringIO()
            with self._store.reader(info) as reader:
                write_page(Report(reader, InStore(self._store, info)), file)
            return file.getvalue()

        return _report_page(await asyncio.to_thread(written), [info])

    async def _compare(self, request: web.Request) -> web.StreamResponse:
        ids = request.query.getall("run", [])
        if len(ids) != 2:
            raise RequestError("select two runs to compare", hint="go back, and check two of them")
        infos = sorted(map(self._info, ids), key=order)

        def compared() -> str:
            sides = SideFinder(self._store)
            before, after = map(sides.open_run, infos)
            return versus_page(held_against(before, after, ComparisonQuestion()), None)

        return _report_page(await asyncio.to_thread(compared), infos)

    async def _history(self, request: web.Request) -> web.StreamResponse:
        suite = request.query.get("suite", "")

        def historic() -> str:
            history = history_of(self._store, suite, limit=_HISTORY_RUNS, choice={})
            if not history.entries:
                raise RequestError("there is no run of this suite that can be shown")
            return history_page(history)

        return _report_page(await asyncio.to_thread(historic), [])

    # ---- actions

    async def _ask(self, request: web.Request) -> web.StreamResponse:
        info, query = self._info(request.match_info["id"]), request.query
        return _html(self._actions.question(info, query.get("do", ""), query.get("value", "")))

    async def _do(self, request: web.Request) -> web.StreamResponse:
        info, form = self._info(request.match_info["id"]), await request.post()
        asked, value = str(form.get("do", "")), str(form.get("value", ""))
        return _redirect(await asyncio.to_thread(self._actions.do, info, asked, value))

    async def _label(self, request: web.Request) -> web.StreamResponse:
        info = self._info(request.match_info["id"])
        form = {name: str(value) for name, value in (await request.post()).items()}
        return _redirect(await asyncio.to_thread(self._actions.label, info, form))


async def _with_text(state: RunState, wanted: CaseFilter) -> set[int] | None:
    return await asyncio.to_thread(state.cases_with, wanted.text) if wanted.text else None


def _redirect(place: str) -> web.Response:
    return web.Response(status=303, headers={"Location": place})


async def _static(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    kinds = {"page.css": "text/css", "view.css": "text/css", "view.js": "text/javascript"}
    if name not in kinds:
        raise web.HTTPNotFound
    path = HERE / "static" / name
    text = str(style()) if name == "page.css" else path.read_text(encoding="utf-8")
    return web.Response(text=text, content_type=kinds[name], charset="utf-8")


def _report_page(page: str, runs: list[RunInfo]) -> web.Response:
    """A page of the report as it is, with links to the viewer's pages above it."""
    links = [("/", "paraval view"), *((f"/runs/{run.id}", run.id) for run in runs)]
    marks = " / ".join(f'<a href="{escape(href)}">{escape(name)}</a>' for href, name in links)
    response = _html(str(page).replace("<body>", f'<body>\n<p class="brand">{marks}</p>', 1))
    response.headers["Content-Security-Policy"] = f"{policy()}; frame-ancestors 'none'"
    return response


def _joined(rows: Iterable[Markup]) -> Markup:
    return Markup().join(rows)


def _news(
    request: web.Request, seen: str, parts: Callable[[], Mapping[str, str]]
) -> web.StreamResponse:
    """What a page shows by now, by the ids of its elements; nothing if it has seen that."""
    if request.query.get("seen") == seen:
        return web.Response(status=204)
    return web.json_response({"seen": seen, "parts": dict(parts())})


# ---- serving


class Serving:
    """A running server."""

    def __init__(self, runner: web.AppRunner, server: asyncio.Server, gate: Gate) -> None:
        self._runner = runner
        self._server = server
        self._gate = gate
        self.port: int = server.sockets[0].getsockname()[1]

    def address(self, path: str = "/") -> str:
        """With a token: who opens it first may use the viewer."""
        return f"http://{HOST}:{self.port}{path}?token={self._gate.token()}"

    async def close(self) -> None:
        self._server.close()
        await self._runner.cleanup()
        await asyncio.sleep(0)  # Connections are closed in the next round of the loop.


async def serve(store: Store, opened: RunInfo | None, port: int | None) -> Serving:
    """Start serving; without a port, on the first free one of ours."""
    viewer = Viewer(store, opened)
    runner = web.AppRunner(
        viewer.app(), access_log=None, handle_signals=False,
        shutdown_timeout=0.2, handler_cancellation=True,
    )  # fmt: skip
    await runner.setup()
    for number in [port] if port is not None else [*range(PORT, PORT + _PORTS_TRIED), 0]:
        try:
            assert runner.server is not None
            connections = viewer.gate.connections(runner.server)
            server = await asyncio.get_running_loop().create_server(connections, HOST, number)
        except OSError as error:
            if port is None:
                continue
            await runner.cleanup()
            raise RequestError(f"port {port} cannot be used: {error.strerror}") from error
        return Serving(runner, server, viewer.gate)
    raise RequestError("no port is free")
