"""Rendering: a template's texts and a caller's variables make the content of a notification.

The engine is MiniJinja. Its own words about an error repeat names, texts and values, so none of them is ever passed on:
what is said here are fields, lines, and the names of variables that are missing.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import minijinja

from services.scheduler import contents, language
from services.scheduler.faults import Faults
from shared.errors import TemplateRenderFailed, Violation

# Steps of the engine. A table of three hundred rows takes less; a line of a header or of data, much less.
FUEL, LINE_FUEL = 10_000, 500
LONG = frozenset({"text", "html", "body"})
MAX_VARIABLES = 64 * 1024
MAX_VALUES = 2_000
MAX_NAMES = 100  # in one object: the engine looks through all of them for each
MAX_DEPTH = 10
MAX_MISSING = 20
MAX_NAME = 100

UNDEFINED = "UndefinedError"
OUT_OF_FUEL = "OutOfFuel"
UNRENDERABLE = "cannot be rendered with these variables"
# Of what the engine says: kinds of tokens, and no token.
SYNTAX = re.compile(r"unexpected (?:identifier|string|integer|float|end of (?:input|block|variable block))\b")

# Where a name stands: the engine says which bytes of a text it could not make anything of.
PATH = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
FILTERED = re.compile(rf"({PATH.pattern})?\s*\|\s*$")
NO_SUCH_NAME = "\0"  # no text has one, and no database takes it
ESCAPED = ".html"  # ends the engine's name of a text in which values are escaped


class VariablesInvalid(Exception):
    """What is wrong with variables, in words that repeat nothing of them."""


def canonical_variables(text: str) -> str:
    """Equal JSON is equal text. Raises VariablesInvalid."""
    if len(text.encode()) > MAX_VARIABLES:
        raise VariablesInvalid(f"must have at most {MAX_VARIABLES} bytes")
    if not text:
        return "{}"
    try:
        found = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
        if not isinstance(found, dict):
            raise VariablesInvalid("must be a JSON object")
        _check_values(found)
        canonical = json.dumps(found, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        canonical.encode()
    except (ValueError, RecursionError):
        raise VariablesInvalid("must be a JSON object") from None
    return canonical


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise VariablesInvalid("has a name twice in one object")
    if len(found) > MAX_NAMES:
        raise VariablesInvalid(f"must have at most {MAX_NAMES} names in one object")
    return found


def _refuse_constant(_: str) -> NoReturn:
    raise VariablesInvalid("must be a JSON object")  # NaN is none, nor is Infinity


def _check_values(variables: Mapping[str, object]) -> None:
    count = 0
    level: list[Any] = [variables]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            below += inner
            _check_value(value)
        count += len(below)
        if count > MAX_VALUES:
            raise VariablesInvalid(f"must have at most {MAX_VALUES} values")
        level = below
    if any(isinstance(value, dict | list) for value in level):
        raise VariablesInvalid(f"must have at most {MAX_DEPTH} levels")
    for value in level:
        _check_value(value)


def _check_value(value: object) -> None:
    if (isinstance(value, str) and "\0" in value) or (isinstance(value, dict) and any("\0" in name for name in value)):
        raise VariablesInvalid("must not contain NUL characters")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise VariablesInvalid("must not have whole numbers of more than 64 bits")


class _Items:
    """What the engine asks an object for to look through it. In a template it is the mark of a name that is missing."""

    def __init__(self, found: dict[str, Any]) -> None:
        self._found = found

    def __call__(self) -> Iterable[tuple[str, Any]]:
        return dict.items(self._found)

    def __str__(self) -> str:
        return NO_SUCH_NAME


class _Object(dict[str, Any]):
    """An object of JSON, which for the engine has the names of its values and none of a Python object's.

    It asks for a name first as for a value, then as for an attribute; but for `items` also to see what this is.
    """

    __slots__ = ("__asked",)

    def __missing__(self, name: str) -> NoReturn:
        self.__asked = name
        raise KeyError

    def __getattribute__(self, name: str) -> Any:
        if name == "items" and getattr(self, "_Object__asked", None) != "items":
            return _Items(self)
        if name.startswith(("__", "_Object__")):
            return super().__getattribute__(name)
        self.__asked = ""
        raise AttributeError


class _List(list[Any]):
    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise AttributeError


def _for_engine(value: Any) -> Any:
    """What is null counts as missing."""
    if isinstance(value, dict):
        return _Object({name: _for_engine(inner) for name, inner in value.items() if inner is not None})
    if isinstance(value, list):
        return _List(_for_engine("" if inner is None else inner) for inner in value)
    return value


def _engine() -> minijinja.Environment:
    engine = minijinja.Environment(
        fuel=LINE_FUEL,
        undefined_behavior="strict",
        auto_escape_callback=lambda name: name.endswith(ESCAPED),
        keep_trailing_newline=True,
        debug=False,  # or an error has the values of all variables
        pycompat=False,
    )
    for name in ("debug", "dict", "namespace", "range"):
        engine.remove_global(name)
    return engine


@dataclass(frozen=True, slots=True)
class _Text:
    """One text of a variant: its field, the entry where the field is a map, and what stands there."""

    field: str
    entry: str | None
    source: str

    def name_for(self, channel: str) -> str:
        return f"{channel.lower()}.{self.field}"


def _texts(parts: contents.Parts) -> Iterator[_Text]:
    for field, part in parts.items():
        if isinstance(part, str):
            yield _Text(field, None, part)
        else:
            yield from (_Text(field, entry, source) for entry, source in part.items())


class Compiled:
    """A variant of a template, ready to be rendered again and again."""

    def __init__(self, channel: str, parts: contents.Parts) -> None:
        """`parts` have passed `problems`."""
        self._channel = channel
        self._maps = [field for field, part in parts.items() if not isinstance(part, str)]
        self._engine = _engine()
        self._texts: dict[str, _Text] = {}
        for number, text in enumerate(_texts(parts)):
            # A text without a tag is what it is: most headers and many subjects need no engine.
            name = f"{number}{ESCAPED if (channel, text.field) == ('EMAIL', 'html') else ''}"
            self._texts[name] = text
            if "{" in text.source:
                self._engine.add_template(name, text.source)

    def render(self, variables_json: str) -> Mapping[str, object]:
        """The content, in canonical form. Raises Failed."""
        variables = _for_engine(json.loads(variables_json))
        said: dict[str, Any] = {field: {} for field in self._maps}
        for name, text in self._texts.items():
            rendered = self._render(name, variables, variables_json) if "{" in text.source else text.source
            if text.entry is None:
                said[text.field] = rendered
            else:
                said[text.field][text.entry] = rendered
        faults = Faults()
        content = dict(contents.RULES[self._channel](faults, said))
        if faults.found:
            raise Failed(faults.found)
        return content

    def _render(self, name: str, variables: dict[str, Any], variables_json: str) -> str:
        try:
            rendered = self._run(name, variables)
        except minijinja.TemplateError as error:
            if error.kind == UNDEFINED and (missing := self._missing(variables_json)):
                raise Failed([], missing) from None
            problem = "takes too much work" if error.kind == OUT_OF_FUEL else UNRENDERABLE
            where = f"line {error.line}: " if error.line else ""
            raise self._failed(name, where + problem) from None
        except Exception:  # of a value that was asked for what it does not have
            raise self._failed(name, UNRENDERABLE) from None
        if NO_SUCH_NAME in rendered:
            raise self._failed(name, UNRENDERABLE)
        return rendered

    def _run(self, name: str, variables: dict[str, Any]) -> str:
        self._engine.fuel = FUEL if self._texts[name].field in LONG else LINE_FUEL
        return self._engine.render_template(name, **variables)

    def _failed(self, name: str, problem: str) -> "Failed":
        return Failed([Violation(self._texts[name].name_for(self._channel), problem)])

    def _missing(self, variables_json: str) -> list[str]:
        """The names of all that is missing, as far as can be told: each is put in, and then the next one is found."""
        found: dict[str, None] = {}
        for name, text in self._texts.items():
            given = _for_engine(json.loads(variables_json))
            while len(found) < MAX_MISSING and (path := self._first_missing(name, text, given)):
                found[path] = None
                if not _put(given, path.split(".")):
                    break
        # Of `a.b.c` the engine finds that there is no `a.b` first.
        return [path[:MAX_NAME] for path in found if not any(other.startswith(f"{path}.") for other in found)]

    def _first_missing(self, name: str, text: _Text, variables: dict[str, Any]) -> str | None:
        if "{" not in text.source:
            return None
        try:
            self._run(name, variables)
        except minijinja.TemplateError as error:
            if error.kind == UNDEFINED and error.range:
                return _name_at(text.source.encode(), *error.range) or self._unknown(name, variables)
        except Exception:
            return None
        return None

    def _unknown(self, name: str, variables: dict[str, Any]) -> str | None:
        """Of the names in a text one that is not there, and that the text does not say it can do without."""
        names = sorted(self._engine.undeclared_variables_in_template(name, nested=True))
        missing = (path for path in names if not _is_there(variables, path.split(".")))
        source = self._texts[name].source
        return next((path for path in missing if not re.search(rf"\b{path}\s*(?:\|\s*d|is\b)", source)), None)


def _name_at(source: bytes, start: int, end: int) -> str | None:
    """The name that the engine means: of a value that was filtered, it shows the filter."""
    filtered = FILTERED.search(source[:start].decode(errors="replace"))
    if filtered:
        return filtered[1]
    path = PATH.search(source[start:end].decode(errors="replace"))
    return path[0] if path else None


def _is_there(variables: Any, path: list[str]) -> bool:
    for name in path:
        if not isinstance(variables, dict) or name not in variables:
            return False
        variables = variables[name]
    return True


def _put(variables: dict[str, Any], path: list[str]) -> bool:
    """Whether something could be put there, where nothing was."""
    place: Any = variables
    for name in path[:-1]:
        place = dict.setdefault(place, name, _Object()) if isinstance(place, dict) else None
    if not isinstance(place, dict) or path[-1] in place:
        return False
    place[path[-1]] = _Object()
    return True


class Failed(Exception):
    """Why nothing came of it: what is wrong with which fields, or what is missing."""

    def __init__(self, violations: Iterable[Violation], missing: Iterable[str] = ()) -> None:
        super().__init__()
        self.violations = tuple(violations)
        self.missing = tuple(missing)

    def of(self, template: str, version: int, locale: str) -> TemplateRenderFailed:
        return TemplateRenderFailed(
            self.violations, self.missing, template=template, version=str(version), locale=locale
        )


def problems(channel: str, parts: contents.Parts) -> Iterator[Violation]:
    """What is wrong with the texts of a variant, each named by its field and line."""
    engine = _engine()
    for text in _texts(parts):
        try:
            language.check(text.source)
            engine.add_template("", text.source)
        except minijinja.TemplateError as error:
            yield Violation(text.name_for(channel), f"line {error.line or 1}: is no template: {_said(error)}")
        except language.NotInLanguage as error:
            yield Violation(text.name_for(channel), f"line {error.line}: {error.problem}")


def _said(error: minijinja.TemplateError) -> str:
    """Only what the engine says of its own, and nothing that it found."""
    found = SYNTAX.match(error.detail or "")
    return found[0] if found else "it cannot be read"
