"""The page as a form of report: loaded with every run, so that what draws it is not."""

from __future__ import annotations

from typing import TextIO

from paraval.report.contents import Contents


class AsHtml:
    """One file that needs nothing else: no script, no network."""

    def write(self, contents: Contents, file: TextIO) -> None:
        # Templates and charts take long to load, and few runs are written as a page.
        from paraval.report.page.writing import write_page  # noqa: PLC0415 - see above

        write_page(contents, file)
