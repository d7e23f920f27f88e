"""The page from its top to its bottom, in the order that a stranger reads it.

First what the run says, then what it is made of, then every case. Cases are written one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TextIO

from paraval.report.closing import closing_sentences
from paraval.report.contents import Contents
from paraval.report.page.against import Against, against_of
from paraval.report.page.answers import answers_of
from paraval.report.page.case_writing import CaseWriter
from paraval.report.page.charts.heat import heat_map
from paraval.report.page.charts.rates import rate_bars
from paraval.report.page.drawings import Chart, charts_of
from paraval.report.page.figures import Figures, figures_of
from paraval.report.page.filters import filters_of
from paraval.report.page.heading import heading_of, rate_of
from paraval.report.page.lists import DeedList, deed_lists, lists_of, nothing_unpassed, table_of
from paraval.report.page.past import past_of
from paraval.report.page.rendering import policy, rendered, rendered_in_pieces, style
from paraval.report.page.room import LARGEST_PAGE, Room
from paraval.report.text import one_line

_LONGEST_REASON = 500


def write_page(contents: Contents, file: TextIO, *, largest: int = LARGEST_PAGE) -> None:
    """`largest`: characters, more or less, beyond which trials are told in short."""
    figures = figures_of(contents)
    against = against_of(contents)
    room = Room(largest=largest, unpassed=figures.unpassed_size)
    for piece in rendered_in_pieces("top.html", **_top(contents, figures, against)):
        room.take(len(piece))
        file.write(piece)
    linked = figures.linked_cases | (against.linked_cases if against else frozenset())
    cases = CaseWriter(contents, figures, room, file, linked_cases=linked)
    cases.write()
    file.write(rendered("bottom.html", not_here=cases.not_here(), run_id=contents.run.id))


def _top(contents: Contents, figures: Figures, against: Against | None) -> dict[str, Any]:
    summary = contents.summary
    answers = answers_of(contents)
    deeds = list(deed_lists(summary))
    charts = list(charts_of(figures, contents.run.parallel, past_of(contents)))
    heat = heat_map(figures.heat_columns, figures.heat)
    first = [("against", "Against the baseline")] if against else []
    links = _links(deeds, charts, has_rates=bool(figures.rates), has_heat=bool(heat))
    *closing, _ = closing_sentences(contents, lambda text: one_line(text, _LONGEST_REASON))
    return {
        "policy": policy(),
        "style": style(),
        "heading": heading_of(contents),
        "answers": answers,
        "rate": rate_of(summary),
        "against": against,
        "links": [*first, *links],
        "rates": rate_bars(figures.rates),
        "table": table_of(summary),
        "elsewhere": f"paraval report {contents.run.id} -o report.json",
        "closing": closing,
        "deeds": deeds,
        "heat": heat,
        "heat_shown": len(figures.heat),
        "heat_left_out": figures.heat_left_out,
        "charts": charts,
        "lists": list(lists_of(summary, figures)),
        "nothing_unpassed": nothing_unpassed(summary),
        "filters": filters_of(contents.book),
    }


def _links(
    deeds: list[DeedList], charts: list[Chart], *, has_rates: bool, has_heat: bool
) -> Iterator[tuple[str, str]]:
    if has_rates:
        yield "rates", "Pass rates"
    yield from ((section.anchor, section.heading) for section in deeds)
    if has_heat:
        yield "map", "Cases by variant"
    yield "unpassed", "What did not pass"
    yield from ((chart.anchor, chart.heading) for chart in charts)
    yield "cases", "All cases"
