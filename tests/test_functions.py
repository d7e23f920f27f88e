"""Functions by name: found in the right folder, and with a reason when they are not."""

from __future__ import annotations

from pathlib import Path

import pytest

from paraval.errors import ParavalError
from paraval.functions import is_async, load_function, positional_arguments


def module(folder: Path, name: str, text: str) -> str:
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    return str(folder)


def test_two_folders_with_modules_of_one_name_are_told_apart(tmp_path: Path) -> None:
    folders = []
    for which in "ab":
        folder = tmp_path / which
        module(folder, "same_helper", f"WHICH = '{which}'\n")
        folders.append(
            module(folder, "same", "import same_helper\ndef tell(): return same_helper.WHICH\n")
        )
    first = load_function("same:tell", folders[0])
    second = load_function("same:tell", folders[1])
    again = load_function("same:tell", folders[0])
    assert [first(), second(), again()] == ["a", "b", "a"]


def test_a_module_is_loaded_once_as_long_as_the_folder_is_the_same(tmp_path: Path) -> None:
    folder = module(tmp_path, "counting_once", "def f(): pass\n")
    assert load_function("counting_once:f", folder) is load_function("counting_once:f", folder)


@pytest.mark.parametrize(
    ("text", "reference", "reason"),
    [
        ("", "broken_name", "write module:function"),
        ("", "no_such_module_here:f", "cannot import 'no_such_module_here'"),
        ("def g(): pass", "lacking:f", "has no 'f'"),
        ("f = 3", "lacking:f", "is not a function \\(its type is int\\)"),
        ("raise SystemExit(2)", "lacking:f", "SystemExit"),
        ("def f(:", "lacking:f", "SyntaxError"),
    ],
)
def test_what_cannot_be_loaded_is_told_with_its_reason(
    tmp_path: Path, text: str, reference: str, reason: str
) -> None:
    folder = module(tmp_path, "lacking", text)
    with pytest.raises(ParavalError, match=reason):
        load_function(reference, folder)


def test_positional_arguments_are_counted_and_async_is_seen() -> None:
    async def waits(case: object) -> None: ...

    class Callable:
        async def __call__(self, case: object) -> None: ...

    assert positional_arguments(lambda a, b, *, c=1: None) == 2
    assert positional_arguments(lambda *rest: None) > 100
    assert is_async(waits)
    assert is_async(Callable())
    assert not is_async(len)


def test_a_file_in_place_of_a_module_is_shown_as_a_module(folder: Path) -> None:
    with pytest.raises(ParavalError, match=r"write checks\.deep:fn"):
        load_function("./checks/deep.py:fn", str(folder))
