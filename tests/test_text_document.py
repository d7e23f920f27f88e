"""Tables and small documents: what gives way where there is little room, and what never does."""

from __future__ import annotations

import pytest

from paraval.text.document import Markdown, Paragraph, Part, Subheading, TextDocument, render
from paraval.text.tables import Column, Medium, Page, Table, TableRow, list_of
from paraval.text.terminal import columns

RATE: Column[str] = Column(heading="rate (95%)", narrow="rate", cell=str)
COST: Column[str] = Column(heading="cost", cell=str, is_spare=True)


def shown(table: Table, out: Medium) -> str:
    return render(TextDocument(title="t", sections=[[table]]), out)


def test_what_can_be_spared_goes_first_then_what_stands_in_brackets() -> None:
    row = TableRow(label="a-model-with-a-name", cells=("50% (9–91%)", "$1.00 for all of it"))
    table = Table(label="variant", columns=[RATE, COST], rows=[row])
    heads = [shown(table, Page(width=width)).split("\n")[0].split() for width in (80, 60, 40)]
    assert heads == [
        ["variant", "rate", "(95%)", "cost"],
        ["variant", "rate", "(95%)", "cost"],
        ["variant", "rate"],
    ]


@pytest.mark.parametrize("width", [40, 60, 100])
@pytest.mark.parametrize("share", [None, 0.4])
def test_every_row_fits_however_long_its_label(width: int, share: float | None) -> None:
    rows = [
        TableRow(label="x" * length, cells=("passed",), beside="why " * length, mark="✗")
        for length in (1, 30, 70)
    ]
    table = Table(rows=rows, label_share=share, beside_lines=2)
    assert max(map(columns, shown(table, Page(width=width)).split("\n"))) <= width


def test_of_what_is_too_long_for_markdown_the_last_can_be_kept_and_no_part_without_its_row() -> (
    None
):
    rows = [
        TableRow(label=f"{name}{number}", cells=("",), is_part=name != "run")
        for number in range(9)
        for name in ("run", "a", "b")
    ]
    for most_bytes in range(40, 200):
        table = Table(
            label="run",
            columns=[RATE],
            rows=rows,
            keeps_last=True,
            most_bytes=most_bytes,
            noun="older run",
        )
        _, _, _, _, more, *kept = shown(table, Markdown()).rstrip().split("\n")
        labels = [line.strip("|· ") for line in kept]
        assert labels == [row.label for row in rows][len(rows) - len(labels) :]
        assert labels[:1] in ([], [f"run{9 - len(labels) // 3}"])
        assert more.startswith(f"| … and {9 - len(labels) // 3} older runs |")


def test_a_document_that_is_too_long_for_a_comment_says_so_and_keeps_its_end() -> None:
    sections: list[list[Part]] = [
        [Subheading(f"{number}:"), list_of(["x" * 5000] * 2)] for number in range(9)
    ]
    document = TextDocument(title="t", verdict="It did.", sections=sections, closing="Run 1.")
    text = render(document, Markdown())
    assert text.startswith("## t\n\n**It did.**\n\n### 0\n\n- xxx")
    assert text.endswith("\n\n… and more, too long for a comment\n\nRun 1.\n")
    assert len(text.encode()) < 65_536


def test_a_verdict_stands_last_on_a_terminal_and_its_title_is_for_markdown() -> None:
    document = TextDocument(title="t", verdict="It did.", sections=[[Paragraph("Much.")], []])
    assert render(document, Page()) == "Much.\nIt did."
    assert render(document, Markdown()) == "## t\n\n**It did.**\n\nMuch.\n"
