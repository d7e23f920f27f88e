"""What tests log beside each other is kept apart, as pytest keeps it for one after another."""

from __future__ import annotations

import logging
from pathlib import Path
from textwrap import dedent

import pytest

from tests.heard import ALL_AT_ONCE, PARALLEL, hear

SUITE = """
    import logging, threading, time
    from concurrent.futures import ThreadPoolExecutor
    import pytest

    log, deep, other = (logging.getLogger(name) for name in ("app", "app.deep", "other"))
    silent = logging.getLogger("silent")
    silent.propagate = False

    def nap():
        time.sleep(0.0005)

    def say_all(times):
        for _ in range(times):
            for logger in (log, deep, other):
                for level in (10, 20, 30, 40):
                    logger.log(level, "at %s", level)
            nap()

    def levels_heard(caplog):
        return {(record.name, record.levelno) for record in caplog.records}

    @pytest.fixture
    def logged():
        log.warning("in setup")
        yield
        log.warning("in teardown")

    @pytest.mark.parametrize("n", range(16))
    def test_everyone_has_its_own(n, caplog, logged):
        for i in range(60):
            log.warning("%s says %s", n, i)
            if i % 20 == 0:
                nap()
        assert caplog.messages == [f"{n} says {i}" for i in range(60)]
        assert [one.getMessage() for one in caplog.get_records("setup")] == ["in setup"]
        assert caplog.text.count("\\n") == 60
        assert caplog.record_tuples[0] == ("app", 30, f"{n} says 0")
        caplog.clear()
        assert caplog.records == [] and caplog.text == ""
        assert n % 4, "so that its log is shown"

    @pytest.mark.parametrize("name", ["app", None, "app.deep"])
    @pytest.mark.parametrize("level", [10, "ERROR", 0])
    def test_a_level_is_set(name, level, caplog):
        caplog.set_level(level, logger=name)
        say_all(8)
        assert 0, (sorted(levels_heard(caplog)), log.isEnabledFor(10), deep.level, other.level)

    @pytest.mark.parametrize("n", range(4))
    def test_nothing_is_set(n, caplog):
        say_all(20)
        assert levels_heard(caplog) == {
            (name, level) for name in ("app", "app.deep", "other") for level in (30, 40)
        }
        assert not log.isEnabledFor(20) and log.level == 0 and logging.getLogger().level == 30

    def test_a_level_for_a_while(caplog):
        for _ in range(20):
            log.info("no")
            with caplog.at_level("INFO"):
                log.info("yes")
                nap()
                with caplog.at_level(10, logger="app"):
                    log.debug("deep")
                log.debug("no")
            log.info("no")
        assert caplog.messages == ["yes", "deep"] * 20

    def test_a_logger_made_for_it(caplog):
        caplog.set_level(10, logger="made.now")
        logging.getLogger("made.now.too").debug("x")
        assert caplog.messages == ["x"]

    def test_set_by_hand_after_caplog(caplog):
        caplog.set_level(10, logger="app")
        log.setLevel(40)
        log.warning("no")
        nap()
        log.error("yes")
        assert caplog.messages == ["yes"] and log.level == 40

    def test_filtering(caplog):
        with caplog.filtering(lambda record: "keep" in record.getMessage()):
            log.warning("keep")
            nap()
            log.warning("drop")
        log.warning("drop no more")
        assert caplog.messages == ["keep", "drop no more"]

    def test_a_bad_record_fails():
        log.warning("%d and %d", 1)

    def test_passes_nothing_on(caplog):
        silent.warning("heard")
        assert 0, caplog.messages

    def test_in_threads(caplog):
        def say(text="t"):
            log.warning(text)

        threads = [threading.Thread(target=say) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(say, ["t"] * 5))
        assert caplog.messages == ["t"] * 10

    def test_is_shown(logged):
        log.error("many\\nlines")
        assert 0
"""


@pytest.mark.parametrize(
    ("loop", "options"),
    [
        (ALL_AT_ONCE, ["--log-file=all.log"]),
        (
            PARALLEL,
            [
                *(
                    "--log-level=INFO",
                    "--color=yes",
                    "--log-file=all.log",
                    "--log-file-level=DEBUG",
                ),
                "--maxfail=999",  # So what fails is not run, and not logged, once more.
            ],
        ),
    ],
    ids=["plain", "levels-and-colors"],
)
def test_reports_are_the_same_as_one_after_another(
    tmp_path: Path, loop: tuple[str, ...], options: list[str]
) -> None:
    """Outcomes, log sections, levels, colors; a log file has the same lines in another order."""
    (tmp_path / "test_logs.py").write_text(dedent(SUITE))

    def lines() -> list[str]:
        """Of the log file, but for what the engine's own loop logs there."""
        logged = (tmp_path / "all.log").read_text().splitlines()
        return sorted(line for line in logged if " asyncio:" not in line)

    plain, plain_lines = hear(tmp_path, *options), lines()
    at_once = hear(tmp_path, *options, *loop)
    assert at_once.reports == plain.reports
    assert lines() == plain_lines
    assert len(plain.reports) > 100
    assert len(plain_lines) > 100


def test_what_one_test_does_to_the_root_logger_ends_with_its_phase(tmp_path: Path) -> None:
    """Handlers that a test clears away, and levels of its own, are put back with the next phase."""
    (tmp_path / "test_hostile.py").write_text(
        dedent(
            """
            import logging, threading
            import pytest

            log = logging.getLogger("app")
            steps = [threading.Barrier(2) for _ in range(2)]

            def test_clears():
                steps[0].wait(5)
                logging.getLogger().handlers.clear()
                logging.getLogger().setLevel(50)
                steps[1].wait(5)

            @pytest.fixture
            def cleared():
                steps[0].wait(5)
                steps[1].wait(5)

            def test_is_heard_again(cleared, caplog):
                log.info("heard")
                assert caplog.messages == ["heard"]
            """
        )
    )
    heard = hear(tmp_path, "--log-level=INFO", *ALL_AT_ONCE)
    assert not heard.failed, heard.output


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    """Handlers, levels and pytest's own methods are exactly what they were."""
    (tmp_path / "test_some.py").write_text(
        dedent(
            """
            import logging
            silent = logging.getLogger("silent")
            silent.propagate = False

            def test_sets(caplog):
                caplog.set_level(10, logger="silent")
                caplog.set_level(10)
                silent.debug("x")
            """
        )
    )
    (tmp_path / "conftest.py").write_text(
        dedent(
            """
            import logging
            import pytest

            def state():
                logger, root = logging.getLogger("silent"), logging.getLogger()
                return (
                    list(root.handlers), root.level, list(logger.handlers), logger.level,
                    dict(vars(logging.Logger)), dict(vars(logging.Manager)),
                    dict(vars(pytest.LogCaptureFixture)), logging.root.manager.disable,
                )

            @pytest.hookimpl(wrapper=True, tryfirst=True)
            def pytest_runtestloop(session):
                before = state()
                yield
                assert state() == before
                print("as it was")
                return True
            """
        )
    )
    heard = hear(tmp_path, "-s", "--log-level=INFO", "--log-cli-level=INFO", *ALL_AT_ONCE)
    assert "as it was" in heard.output, heard.output
    assert logging.Logger.isEnabledFor.__module__ == "logging"


def test_live_logs_say_whose_they_are(tmp_path: Path) -> None:
    """With `log_cli`, a heading stands where the lines of another test or phase begin."""
    (tmp_path / "test_live.py").write_text(
        dedent(
            """
            import logging, threading
            import pytest
            steps = [threading.Barrier(2) for _ in range(3)]

            @pytest.mark.parametrize("n", range(2))
            def test_talks(n):
                for step in range(2):
                    steps[step].wait(5)
                    if step == n:
                        logging.getLogger("app").info("one of %s", n)
                        logging.getLogger("app").info("two of %s", n)
                    steps[2].wait(5)
            """
        )
    )
    lines = hear(tmp_path, "--log-cli-level=INFO", *ALL_AT_ONCE).output.splitlines()
    shown = [line.strip("- ") for line in lines if "live log" in line or " of " in line]
    assert [line for line in shown if "live log" in line] == [
        f"live log call: test_live.py::test_talks[{n}]" for n in range(2)
    ]
    assert [line[-8:] for line in shown if "live log" not in line] == [
        "one of 0",
        "two of 0",
        "one of 1",
        "two of 1",
    ]
