"""A separate program: finds what a candidate's Python files keep between calls, and rewrites them
so that they tell which changed functions and added lines run.

Reads a JSON object from stdin: path -> [old text or null, new text]. Writes one to stdout: path ->
{"telling": text, "functions": [names], "lines": number, "state": [words]}, without files that
cannot be parsed. What runs is told in the file of the first argument, a line each: `path 12`, or
`path 0` for a changed function. It does not import paraval, and does not run what it reads.
"""

from __future__ import annotations

import ast
import difflib
import json
import sys
import threading
from collections.abc import Iterator
from typing import Any

BREAKING = 'raise SystemExit("paraval: is this line run by a test?")'
CACHING = frozenset({"lru_cache", "cache", "cached", "cached_property", "memoize"})
CHANGING = frozenset(
    {"__setitem__", "add", "append", "appendleft", "extend", "insert", "setdefault", "update"}
)
Function = ast.FunctionDef | ast.AsyncFunctionDef
_FAULTS = (SyntaxError, ValueError, RecursionError, MemoryError, SystemError)


def main() -> None:
    """In a thread with a deep stack: a long sum is a deep tree."""
    sys.setrecursionlimit(100_000)
    threading.stack_size(512 << 20)
    work = threading.Thread(target=_main)
    work.start()
    work.join()


def _main() -> None:
    findings = {}
    for path, (old, new) in json.load(sys.stdin).items():
        try:
            found = _inspect(ast.parse(old or ""), ast.parse(new), _added(old or "", new))
        except _FAULTS:
            continue
        prelude = _TELLING.format(file=sys.argv[1], path=path)
        findings[path] = {**found, "telling": _first(found["telling"], prelude)}
    json.dump(findings, sys.stdout)


def _added(old: str, new: str) -> set[int]:
    """The numbers of the lines that are not in the old text."""
    before, after = old.splitlines(), new.splitlines()
    same = difflib.SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    kept = {place for block in same for place in range(block.b, block.b + block.size)}
    return {place + 1 for place in range(len(after)) if place not in kept}


def _inspect(old: ast.Module, new: ast.Module, added: set[int]) -> dict[str, Any]:
    before = {name: ast.dump(one) for name, one in _functions(old)}
    changed = {name: one for name, one in _functions(new) if before.get(name) != ast.dump(one)}
    # State that was kept before is not new, whichever function keeps it.
    known = {kept for name, one in _functions(old) for kept, _ in _state(name, one, old, old)}
    state = [
        words
        for name, one in changed.items()
        for kept, words in _state(name, one, new, old)
        if kept not in known
    ]
    # Bodies of functions only: what a module does when it is imported shows nothing of them.
    lines = (
        {number for _, one in _functions(new) for number in _tell(one.body, added)}
        if changed
        else set(_tell(new.body, added))
    )
    for one in changed.values() if changed else (new,):
        _insert_first(one.body, 0)
    return {
        "telling": new,
        "functions": list(changed),
        "lines": len(lines),
        "state": list(dict.fromkeys(state)),
    }


_TELLING = """
def _paraval_ran(number, known=set()):
    if number not in known:
        known.add(number)
        with open({file!r}, "a") as file:
            file.write({path!r} + f" {{number}}\\n")
"""


def _first(tree: ast.Module, prelude: str) -> str:
    """The text of a module with a prelude behind its docstring and `__future__` imports."""
    _insert(tree.body, ast.parse(prelude).body[0])
    return ast.unparse(ast.fix_missing_locations(tree))


def _tell(body: list[ast.stmt], added: set[int]) -> Iterator[int]:
    """Let each added statement tell that it runs; yield their lines."""
    for node in list(body):
        if isinstance(node, ast.ClassDef):
            continue
        for inner in _bodies(node):
            yield from _tell(inner, added)
        if node.lineno in added and not _stands_first(node):
            body.insert(body.index(node), _call(node.lineno))
            yield node.lineno


def _bodies(node: ast.stmt) -> Iterator[list[ast.stmt]]:
    for name in ("body", "orelse", "finalbody"):
        if inner := getattr(node, name, None):
            yield inner
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def _call(number: int) -> ast.stmt:
    return ast.parse(f"_paraval_ran({number})").body[0]


def _insert_first(body: list[ast.stmt], number: int) -> None:
    _insert(body, _call(number))


def _functions(tree: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Functions and methods by qualified name; nested ones belong to the outer one."""
    for node in tree.body:
        if isinstance(node, Function):
            yield f"{prefix}{node.name}", node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{prefix}{node.name}.")


def _insert(body: list[ast.stmt], node: ast.stmt) -> None:
    place = 0
    while place < len(body) and _stands_first(body[place]):
        place += 1
    body.insert(place, node)


def _stands_first(node: ast.stmt) -> bool:
    """Whether it is a docstring or must be at the start of a module."""
    match node:
        case ast.Expr(value=ast.Constant(value=str())) | ast.ImportFrom(module="__future__"):
            return True
        case _:
            return False


# ---- state


def _state(
    name: str, function: Function, tree: ast.Module, old: ast.Module
) -> Iterator[tuple[str, str]]:
    """What a function keeps for its next call: an identifier, and words to show."""
    for node in ast.walk(function):
        call = node.func if isinstance(node, ast.Call) else None
        if isinstance(node, ast.Name | ast.Attribute) and node in function.decorator_list:
            call = node
        if call is not None and (cache := _last_name(call)) in CACHING:
            yield f"{cache} on {name}", f"`{cache}` on {name}"
    shared = _shared_with(function, tree) | _kept_by_closures(function)
    # What a constructor writes is the state of a new object, like all of one that is made anew.
    owner = name.rpartition(".")[0]
    is_new = function.name in _CONSTRUCTORS or not _is_long_lived(owner, tree, old)
    own = None if is_new else _self_of(function)
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and _last_name(node.func) == "setattr" and not is_new:
            yield f"setattr in {name}", f"`setattr`, called by {name}"
        if (written := _written(node)) is None:
            continue
        if (root := _root(written)) in (*shared, own) and root is not None:
            kept = _attribute_in(written) if root in ("cls", own) else root
            yield f"{kept}", f"`{kept}`, written by {name}"
        elif (through := _called_in(written)) in ("globals", "vars", "locals"):
            yield f"{through}() in {name}", f"`{through}()`, written by {name}"


_CONSTRUCTORS = ("__init__", "__new__", "__post_init__")


def _is_long_lived(owner: str, tree: ast.Module, old: ast.Module) -> bool:
    """Whether objects of a class may outlive a call: it was there before, or a module has one."""
    before = {node.name for node in ast.walk(old) if isinstance(node, ast.ClassDef)}
    made = {
        _last_name(node.func)
        for statement in tree.body
        if not isinstance(statement, Function | ast.ClassDef)
        for node in ast.walk(statement)
        if isinstance(node, ast.Call)
    }
    return owner.rpartition(".")[2] in before | made


def _kept_by_closures(function: Function) -> set[str]:
    """Names of a function that inner functions keep which outlive its call, since it returns
    them."""
    inner = [one for one in ast.walk(function) if isinstance(one, Function) and one is not function]
    # Itself, or in a tuple or the like: an argument of a call that is returned ends with the call.
    returned = {
        name.id
        for node in ast.walk(function)
        if isinstance(node, ast.Return | ast.Yield) and node.value is not None
        for name in (node.value, *ast.iter_child_nodes(node.value))
        if isinstance(name, ast.Name) and not isinstance(node.value, ast.Call)
    }
    outliving = [one for one in inner if one.name in returned]
    used = {node.id for one in outliving for node in ast.walk(one) if isinstance(node, ast.Name)}
    within = {id(node) for one in inner for node in ast.walk(one)}
    return used & {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in within
    }


def _called_in(node: ast.expr) -> str | None:
    """`globals` of `globals()[...]`."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return _last_name(node.func) if isinstance(node, ast.Call) else None


def _self_of(function: Function) -> str | None:
    """The name of a method's own object."""
    arguments = (*function.args.posonlyargs, *function.args.args)
    return arguments[0].arg if arguments and arguments[0].arg == "self" else None


def _attribute_in(node: ast.expr) -> str:
    """`self.x` of `self.x.y[0]`."""
    while isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.value, ast.Name):
        node = node.value
    return ast.unparse(node)


def _shared_with(function: Function, tree: ast.Module) -> set[str]:
    """Names shared by all calls: the module's, the class, mutable defaults."""
    of_module = {name for node in _at_the_top(tree.body) for name in _bound(node)}
    given = function.args
    with_default = [*given.posonlyargs, *given.args][::-1][: len(given.defaults)][::-1]
    defaults = [
        *zip(with_default, given.defaults, strict=True),
        *zip(given.kwonlyargs, given.kw_defaults, strict=True),
    ]
    mutable = {
        one.arg
        for one, value in defaults
        if isinstance(value, ast.Dict | ast.List | ast.Set | ast.Call)
    }
    declared = {
        name for node in ast.walk(function) if isinstance(node, ast.Global) for name in node.names
    }
    own = {node.arg for node in ast.walk(function) if isinstance(node, ast.arg)}
    own |= {
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    return (of_module - own) | declared | mutable | {"cls"}


def _at_the_top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that a module runs, within `try` and `if` too."""
    for node in body:
        yield node
        if not isinstance(node, Function | ast.ClassDef):
            for inner in _bodies(node):
                yield from _at_the_top(inner)


def _bound(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, Function | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            yield from (one.id for one in ast.walk(target) if isinstance(one, ast.Name))


def _written(node: ast.AST) -> ast.expr | None:
    """What the node changes: `x[...] = `, `x.y = `, `x.append(...)`, and `x = ` of a global."""
    if isinstance(node, ast.Subscript | ast.Attribute) and not isinstance(node.ctx, ast.Load):
        return node.value if isinstance(node, ast.Subscript) else node
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.value if node.func.attr in CHANGING else None
    return None


def _root(node: ast.expr) -> str | None:
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _last_name(node: ast.expr) -> str | None:
    return node.attr if isinstance(node, ast.Attribute) else _root(node)


if __name__ == "__main__":
    main()
