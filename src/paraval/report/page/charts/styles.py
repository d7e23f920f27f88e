"""The one sheet of styles of all charts, for the page to include."""

from __future__ import annotations

from importlib.resources import files


def chart_styles() -> str:
    return files(__package__).joinpath("charts.css").read_text(encoding="utf-8")
