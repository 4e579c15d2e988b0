"""The language of templates: that of Jinja, less what can reach out, loop for ever, or grow without end.

The engine's fuel bounds what is done step by step. It does not bound what one step costs, where lists are joined into
others again and again: sixty such steps make one that never ends, and nothing in the process runs meanwhile. So values
are looked at, compared, filtered and joined to texts, and nothing else; and every loop is over what the caller brought.

The engine also calls itself for each operator of an expression, without looking at how deep it is: tens of thousands
in one end the process. So a text is looked at here before the engine sees it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

MAX_TAGS = 2_000
MAX_TOKENS = 200  # in one tag

STATEMENTS = frozenset({"if", "elif", "else", "endif", "for", "endfor", "set", "endset", "with", "endwith"})
FILTERS = frozenset(
    {
        *("abs", "capitalize", "count", "d", "default", "dictsort", "e", "escape", "first", "float", "format", "int"),
        *("items", "join", "last", "length", "lower", "replace", "reverse", "round", "sort", "string", "striptags"),
        *("title", "trim", "upper", "urlencode"),
    }
)
TESTS = frozenset(
    {
        *("defined", "undefined", "none", "true", "false", "string", "number", "integer", "float", "boolean"),
        *("sequence", "mapping", "odd", "even", "divisibleby", "eq", "ne", "lt", "le", "gt", "ge", "in"),
        *("startingwith", "endingwith", "containing"),
    }
)
CALLED = frozenset({"cycle", "changed"})  # of `loop`

# What stands before an operand: a bracket behind it begins one, and does not take part of what stands before.
WORDS = frozenset({"in", "not", "and", "or", "if", "elif", "else", "is", "for", "set", "with"})
OPERATORS = frozenset({"==", "!=", "<=", ">=", "<", ">", "~", "=", "-", "/", "//", "%", ".", ",", ":", "|"})
GROWING = frozenset({"+", "*", "**", "{"})

OPENING = re.compile(r"\{[{%#]")
RAW = re.compile(r"\{%[-+]?\s*raw\s*[-+]?%\}.*?\{%[-+]?\s*endraw\s*[-+]?%\}", re.DOTALL)
COMMENT = re.compile(r"\{#.*?#\}", re.DOTALL)
TOKEN = re.compile(
    r"""\s*(?:
    (?P<close>[-+]?(?:\}\}|%\}))
    |(?P<text>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    |(?P<number>\d[\d_]*(?:\.\d+)?(?:[eE][+-]?\d+)?)
    |(?P<name>[^\W\d]\w*)
    |(?P<sign>\*\*|//|==|!=|<=|>=|.)
    )""",
    re.DOTALL | re.VERBOSE,
)


class NotInLanguage(Exception):
    """What stands at a line is not part of the language. `problem` repeats names of Jinja's own words only."""

    def __init__(self, line: int, problem: str) -> None:
        super().__init__(problem)
        self.line = line
        self.problem = problem


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int

    @property
    def is_operand(self) -> bool:
        """Whether a value ends here."""
        if self.kind == "name":
            return self.text not in WORDS
        return self.kind in ("text", "number") or self.text in (")", "]")


NOTHING = _Token("", "", 0)


@dataclass(slots=True)
class _Tag:
    """What stands between two braces and the next two."""

    statement: bool
    tokens: list[_Token] = field(default_factory=list)
    open_: list[str] = field(default_factory=list)
    """The brackets that are open: `call`, `group`, `list` or `part`."""

    def before(self, steps: int = 1) -> _Token:
        return self.tokens[-steps] if len(self.tokens) >= steps else NOTHING


def check(source: str) -> None:
    """Raises NotInLanguage. What is not well-formed may pass: the engine says so."""
    at = tags = 0
    while found := OPENING.search(source, at):
        at = found.start()
        tags += 1
        if tags > MAX_TAGS:
            raise NotInLanguage(_line(source, at), f"there are more than {MAX_TAGS} tags")
        if skipped := (RAW if found[0] == "{%" else COMMENT).match(source, at):
            at = skipped.end()
        elif found[0] == "{#":
            raise NotInLanguage(_line(source, at), "the comment has no end")
        else:
            at = _check_tag(source, found.end(), _Tag(found[0] == "{%"))


def _check_tag(source: str, at: int, tag: _Tag) -> int:
    """Answers where it ends."""
    if source[at : at + 1] in ("-", "+"):
        at += 1
    while found := TOKEN.match(source, at):
        at = found.end()
        kind = found.lastgroup or ""
        if kind == "close":
            return at
        token = _Token(kind, found[kind], found.start(kind))
        for problem in _problems(tag, token):
            raise NotInLanguage(_line(source, token.at), problem)
        tag.tokens.append(token)
    return at


def _line(source: str, at: int) -> int:
    return source.count("\n", 0, at) + 1


def _problems(tag: _Tag, token: _Token) -> Iterator[str]:
    if len(tag.tokens) >= MAX_TOKENS:
        yield f"there are more than {MAX_TOKENS} words and signs in one tag"
    if token.kind == "name":
        yield from _of_name(tag, token)
    elif token.kind == "sign":
        yield from _of_sign(tag, token)
    if tag.open_ and tag.open_[-1] == "list" and token.kind == "name":
        yield "a list may hold texts and numbers only"


def _of_name(tag: _Tag, token: _Token) -> Iterator[str]:
    before = tag.before()
    if tag.statement and not tag.tokens and token.text not in STATEMENTS:
        yield "this statement is not part of the language"
    if before.text == "|" and token.text not in FILTERS:
        yield "this filter is not part of the language"
    if _begins_test(tag) and token.text not in TESTS | {"not"}:
        yield "this test is not part of the language"
    if token.text == "recursive" and tag.statement and tag.before(len(tag.tokens)).text == "for" and before.is_operand:
        yield "recursive loops are not part of the language"


def _of_sign(tag: _Tag, token: _Token) -> Iterator[str]:
    match token.text:
        case "(":
            if tag.before().is_operand or _begins_test(tag):
                if not _may_be_called(tag):
                    yield "nothing can be called"
                tag.open_.append("call")
            else:
                tag.open_.append("group")
        case "[":
            tag.open_.append("part" if tag.before().is_operand else "list")
        case ")" | "]":
            if tag.open_:
                tag.open_.pop()
        case ",":
            if (tag.open_[-1] if tag.open_ else "") in ("group", "part") or not (tag.open_ or _lists_names(tag)):
                yield "lists of values are not part of the language"
        case _ if token.text not in OPERATORS:
            yield f"{token.text if token.text in GROWING else 'this'} is not part of the language"


def _begins_test(tag: _Tag) -> bool:
    before = tag.before()
    return before.text == "is" or (before.text == "not" and tag.before(2).text == "is")


def _may_be_called(tag: _Tag) -> bool:
    """A filter or a test with arguments, and what loops have."""
    before, second, third = tag.before(), tag.before(2), tag.before(3)
    if before.kind != "name":
        return False
    if second.text == "|" or second.text == "is" or (second.text == "not" and third.text == "is"):
        return True
    return before.text in CALLED and second.text == "." and third.text == "loop"


def _lists_names(tag: _Tag) -> bool:
    """`for name, value in` and `with one=1, other=2`; elsewhere a comma makes a list."""
    words = [token.text for token in tag.tokens]
    return tag.statement and (words[:1] == ["with"] or (words[:1] == ["for"] and "in" not in words))
