"""Charts are safe to put into the page: well-formed, inert, and without styles of their own."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest
from lxml import etree
from markupsafe import Markup

from paraval.report.compare.case_results import CaseBook
from paraval.report.page import plots
from paraval.report.page.plots import (
    DifferencePlot,
    QualityCost,
    TrendPoint,
    heat_map,
    over_time,
    scatter,
    trend,
)
from paraval.report.page.rendering import style
from tests.comparing_kit import book_of, trial
from tests.test_charts import drawn, heat, rate_bar

PAYLOADS = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script><!--<script>",
    "<img src=x onerror=alert(1)>",
    '"><svg onload=alert(1)>',
    "' onmouseover='alert(1)",
    '" onfocus="alert(1)" autofocus="',
    "javascript:alert(1)",
    "data:text/html,<script>alert(1)</script>",
    "</title></svg><script>alert(1)</script>",
    "</desc><foreignObject><iframe src=//evil.example></foreignObject>",
    "</style><style>*{display:none}</style>",
    "</details></table></figure>",
    "<meta http-equiv=refresh content=0;url=//evil.example>",
    "<base href=//evil.example>",
    "<!--",
    "]]><![CDATA[",
    "&lt;script&gt; &#60;b&#62; &amp;",
    "{{7*7}} {% raw %} ${7*7}",
    "\x00\x08\x1b[31mred\x1b[0m\x1b]8;;http://evil.example\x07link\x1b]8;;\x07\ufffe\uffff",
    "\u202egnp.exe \u2066\u200f \ud800 =SUM(A1) | a\nb\r\nc 👩‍👩‍👧",
]
DRAWN = {"svg", "g", "rect", "line", "circle", "path", "text", "title", "desc"}
WRITTEN = {"a", "b", "div", "span", "p", "figure", "ul", "li"}
OUR_ELEMENTS = {"page", "table", "thead", "tbody", "tr", "th", "td"} | DRAWN | WRITTEN


def every_chart(label: str) -> Markup:
    """All charts, with the label wherever there is one."""
    half = (0.2, 0.8)
    rates = {"pass_rate": 0.5, "pass_rate_interval": half, "passed": 2, "failed": 2, "errors": 1}
    difference = DifferencePlot(mean=0.1, interval=half, kind="open", words=label)
    cells = (trial(label, {label: value}, end) for value in (label, 1) for end in "PF")
    costs = [QualityCost(label=label, usd=0.1 + n, rate=0.5) for n in range(2)]
    point = TrendPoint(run=label, series=label, rate=0.5, interval=half, changed=(label,))
    return Markup().join(
        [
            rate_bar(label, **rates),
            heat(book_of(cells)),
            drawn("difference", difference, label, 0.4),
            drawn("scatter", scatter(costs)),
            drawn("over_time", over_time([(1, 2)], [label])),
            drawn("trend", trend([point])),
        ]
    )


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_hostile_label_is_shown_and_does_nothing(payload: str) -> None:
    """Alone, and at the end of one so long that it is cut."""
    for label in (payload, "x" * 30 + payload * 30):
        page = etree.fromstring(f"<page>{every_chart(label)}</page>".encode())
        for one in page.iter():
            assert one.tag in OUR_ELEMENTS
            for name, value in one.attrib.items():
                assert not str(name).startswith("on")
                assert name not in ("style", "src", "id")
                assert name != "href" or re.fullmatch(r"#case-\d+", str(value))


def test_a_label_stands_in_every_chart_as_it_is() -> None:
    page = etree.fromstring(f"<page>{every_chart('<b>&amp;')}</page>".encode())
    figures = ["".join(map(str, one.itertext())) for one in page.iter("figure")]
    assert len(figures) == 6
    assert all("<b>&amp;" in figure for figure in figures)


def test_without_data_there_is_no_chart() -> None:
    assert heat_map(CaseBook()) is None
    assert scatter([]) is None
    assert over_time([], []) is None
    assert trend([]) is None


def test_every_drawing_says_in_words_what_it_shows() -> None:
    page = etree.fromstring(f"<page>{every_chart('a')}</page>".encode())
    drawings = [one for one in page.iter("svg") if one.get("role") == "img"]
    assert len(drawings) >= 5
    for one in drawings:
        assert one[0].tag == "title"
        assert one[0].text
        assert one[1].tag == "desc"
        assert one[1].text


# ---- the styles


def palettes() -> list[dict[str, str]]:
    """The colors by name, on a light ground and on a dark one."""
    sheet = Path(plots.__file__).with_name("charts.css").read_text(encoding="utf-8")
    light, dark = sheet.split("@media screen and (prefers-color-scheme: dark)")
    return [dict(re.findall(r"--chart-([\w-]+): (#\w{6})", part)) for part in (light, dark)]


def linear(color: str) -> list[float]:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def brightness(rgb: list[float]) -> float:
    return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted(brightness(linear(color)) for color in (one, other))
    return (high + 0.05) / (low + 0.05)


def test_colors_have_enough_contrast_on_both_grounds() -> None:
    """3 for what is drawn, 4.5 for what is read."""
    for colors in palettes():
        ground = colors["ground"]
        for name in (
            "bar",
            "accent",
            "pass",
            "fail",
            "error",
            "skip",
            *(f"v{n}" for n in range(1, 9)),
        ):
            assert contrast(colors[name], ground) >= 3, name
        for name in ("ink", "soft"):
            assert contrast(colors[name], ground) >= 4.5, name
        assert contrast(colors["fail"], ground) >= 4.5, "the sign in a failed cell"
        assert contrast(colors["soft"], colors["lane"]) >= 4.5, "the sign in a skipped cell"
        for name in ("pass-soft", "fail-soft", "error-soft", "mixed-soft"):
            sign = colors["pass"] if name == "pass-soft" else colors["ink"]
            assert contrast(sign, colors[name]) >= 4.5, name


# How colors look without the first, the second or the third kind of cone: Machado, Oliveira and
# Fernandes (2009), at full severity.
EYES = {
    "all three": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protanopia": (
        (0.152286, 1.052583, -0.204868),
        (0.114503, 0.786281, 0.099216),
        (-0.003882, -0.048116, 1.051998),
    ),
    "deuteranopia": (
        (0.367322, 0.860646, -0.227968),
        (0.280085, 0.672501, 0.047413),
        (-0.011820, 0.042940, 0.968881),
    ),
    "tritanopia": (
        (1.255528, -0.076749, -0.178779),
        (-0.078411, 0.930809, 0.147602),
        (0.004733, 0.691367, 0.303900),
    ),
}


def seen(color: str, eyes: str) -> tuple[float, float, float]:
    """CIELAB, where a distance of about 2 can just be seen."""
    rgb = linear(color)
    red, green, blue = (
        min(max(sum(a * b for a, b in zip(row, rgb, strict=True)), 0.0), 1.0) for row in EYES[eyes]
    )
    x = (0.4124 * red + 0.3576 * green + 0.1805 * blue) / 0.9505
    z = (0.0193 * red + 0.1192 * green + 0.9505 * blue) / 1.089
    bent = [
        part ** (1 / 3) if part > 0.008856 else 7.787 * part + 16 / 116
        for part in (x, brightness([red, green, blue]), z)
    ]
    return 116 * bent[1] - 16, 500 * (bent[0] - bent[1]), 200 * (bent[1] - bent[2])


@pytest.mark.parametrize("eyes", EYES)
def test_variants_are_told_apart_by_everybody(eyes: str) -> None:
    for colors in palettes():
        variants = [seen(colors[f"v{number}"], eyes) for number in range(1, 9)]
        for one, other in combinations(variants, 2):
            assert sum((a - b) ** 2 for a, b in zip(one, other, strict=True)) ** 0.5 > 20


def test_the_styles_load_nothing_and_every_color_they_use_is_defined() -> None:
    styles = style()
    assert not re.search(r"url\(|@import|expression|</", styles)
    used = set(re.findall(r"var\(--chart-([\w-]+)\)", styles)) - {"mark"}
    for colors in palettes():
        assert used <= set(colors)
