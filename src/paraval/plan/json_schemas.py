"""Check JSON Schemas when a suite is loaded: valid, and without external references."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import referencing.exceptions
from jsonschema import exceptions, validators
from referencing.jsonschema import EMPTY_REGISTRY, specification_with

from paraval.documents.problems import Location, Step, shown
from paraval.text.suggest import suggestion

TYPES = ("array", "boolean", "integer", "null", "number", "object", "string")
REFERENCES = ("$ref", "$dynamicRef")

Reference = tuple[dict[str, Any], str, Any]
"""The part of a schema that refers, the key that refers, and a resolver for that part."""


def check_schema(schema: dict[str, Any], spot: Location) -> None:
    """Report the problems of a schema at a location."""
    dialect = schema.get("$schema", "")
    if not isinstance(dialect, str):
        spot.at("$schema").report(f"must be text, not {shown(dialect)}")
        return
    kind = validators.validator_for(schema, default=validators.Draft202012Validator)
    try:
        kind.check_schema(schema)
        _check_references(schema, kind.META_SCHEMA, spot)
    except exceptions.SchemaError as error:
        spot.at(*error.absolute_path).report(_words_of(error))
    except RecursionError:
        spot.report("nested too deeply")


def _words_of(error: exceptions.SchemaError) -> str:
    path = error.absolute_path
    if path and path[-1] == "type" and isinstance(error.instance, str):
        return f"unknown JSON type {shown(error.instance)}{suggestion(error.instance, TYPES)}"
    return f"not valid JSON Schema: {error.message}"


# ---- references


def _check_references(schema: dict[str, Any], dialect: Mapping[str, Any], spot: Location) -> None:
    # As in graders: nothing outside the schema is ever fetched.
    name = dialect.get("$id") or dialect["id"]  # `id` in drafts 3 and 4
    resource = specification_with(name).create_resource(schema)
    resolver = EMPTY_REGISTRY.resolver_with_root(resource)
    places = dict(_places(schema))
    for part, key, nearby in _references(resource, resolver):
        problem = _reference_problem(part, key, nearby)
        if problem:
            spot.at(*places.get(id(part), ()), key).report(problem)


def _places(value: Any, steps: tuple[Step, ...] = ()) -> Iterator[tuple[int, tuple[Step, ...]]]:
    """Return the steps to every mapping, by its identity."""
    if isinstance(value, dict):
        yield id(value), steps
    inside = value.items() if isinstance(value, dict) else enumerate(value)
    for step, inner in inside:
        if isinstance(inner, dict | list):
            yield from _places(inner, (*steps, step))


def _references(resource: Any, resolver: Any) -> Iterator[Reference]:
    """Yield all subschemas; the library knows which mappings are schemas and which are data."""
    part = resource.contents
    if isinstance(part, dict):
        for key in REFERENCES:
            if isinstance(part.get(key), str):
                yield part, key, resolver
    for inner in resource.subresources():
        yield from _references(inner, resolver.in_subresource(inner))


def _reference_problem(part: dict[str, Any], key: str, resolver: Any) -> str | None:
    """Return the problem of a reference, following references to other references."""
    seen: list[Any] = []
    found: Any = part
    while isinstance(found, dict) and isinstance(found.get(key), str):
        if any(found is other for other in seen):
            return "refers to itself endlessly"
        seen.append(found)
        try:
            resolved = resolver.lookup(found[key])
        # The library fails on pointers that lead through a text, a number or true.
        except (referencing.exceptions.Unresolvable, LookupError, TypeError, ValueError):
            return _missing(part[key]) if found is part else None
        found, resolver = resolved.contents, resolved.resolver
    return None if isinstance(found, dict | bool) else _missing(part[key])


def _missing(reference: str) -> str:
    hint = "" if reference.startswith("#") else "; references are not fetched"
    return f"refers to {shown(reference)}, which is not in the schema{hint}"
