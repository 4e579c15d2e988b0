"""What templates may do, what comes of them, and that nothing else is ever told."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notifyqueue.v1 import notification_pb2
from services.scheduler.contents import Parts
from services.scheduler.language import MAX_TAGS, MAX_TOKENS
from services.scheduler.notification import TemplateUse
from services.scheduler.renderer import Renderer, Version
from services.scheduler.rendering import Compiled, Failed, VariablesInvalid, canonical_variables, problems
from services.scheduler.templates import EMPTY, VersionRef
from shared.errors import ApiError

SECRET = "geheim"


def mail(**parts: Any) -> Parts:
    return {**EMPTY["EMAIL"], "subject": "s", "text": "t", **parts}


def rendered(variables: Any, **parts: Any) -> Any:
    said = mail(**parts)
    assert not list(problems("EMAIL", said))
    return Compiled("EMAIL", said).render(canonical_variables(json.dumps(variables)))


def failure(variables: Any, **parts: Any) -> Failed:
    with pytest.raises(Failed) as failed:
        rendered(variables, **parts)
    told = f"{failed.value} {failed.value.violations} {failed.value.of('t', 1, 'en').message}"
    assert SECRET not in told
    assert failed.value.__cause__ is None
    assert failed.value.__suppress_context__ or failed.value.__context__ is None
    return failed.value


def problem(text: str) -> str:
    (found,) = problems("SMS", {"text": text})
    assert found.field == "sms.text"
    return found.problem


@pytest.mark.parametrize(
    ("text", "variables", "expected"),
    [
        ("{{ a.b[0] }}", {"a": {"b": ["x"]}}, "x"),
        ("{{ a.items }}", {"a": {"items": "x"}}, "x"),
        ("{% for k, v in a|items %}{{ k }}={{ v }};{% endfor %}", {"a": {"x": 1, "y": 2}}, "x=1;y=2;"),
        ("{{ a|default('x') }}{{ b.c|default('y') }}", {"b": {}}, "xy"),
        ("{{ a|default('x') }}", {"a": None}, "x"),
        ("{% if a is defined and a %}y{% else %}n{% endif %}", {}, "n"),
        ("{% for i in a %}{{ loop.index }}{{ loop.cycle('a', 'b') }}{% endfor %}", {"a": [1, 2]}, "1a2b"),
        ("{% set x = a ~ '!' %}{{ x|upper }}", {"a": "b"}, "B!"),
        ("{{ 'x' if a in ['u', 'v'] else 'y' }}", {"a": "v"}, "x"),
        ("{{ '%.2f'|format(a) }} {{ a|round }}", {"a": 2.5}, "2.50 2.0"),
        ("{% raw %}{{ a + b }}{% endraw %}{# a + b #}{{ '}}' }}", {}, "{{ a + b }}}}"),
        ("a\n", {}, "a\n"),
        ("{{ a }}\n", {"a": 1}, "1\n"),
    ],
)
def test_values_are_put_in(text: str, variables: Any, expected: str) -> None:
    assert rendered(variables, text=text)["text"] == expected


@pytest.mark.parametrize(
    "text",
    [
        "{{ a + b }}",
        "{{ a * 2 }}",
        "{{ 2 ** 9 }}",
        "{{ [a] }}",
        "{{ (a, b) }}",
        "{{ {'a': 1} }}",
        "{% set x = a, b %}",
        "{% for x in a, b %}{% endfor %}",
        "{{ a.pop() }}",
        "{{ range(9) }}",
        "{{ a|list }}",
        "{{ a|chain(a) }}",
        "{{ a|safe }}",
        "{{ a|attr('b') }}",
        "{{ a is filter('x') }}",
        "{% for x in a recursive %}{% endfor %}",
        "{% macro a() %}{% endmacro %}",
        "{% include 'a' %}",
        "{% import 'a' as b %}",
        "{% extends 'a' %}",
        "{% block a %}{% endblock %}",
        "{% autoescape false %}{% endautoescape %}",
        "{{ x" + "|string" * MAX_TOKENS + " }}",
        "{{ " + "-" * 30_000 + "1 }}",  # would end the process
        "{{ " + "not " * 16_000 + "a }}",  # likewise
        "{{ a" + " ~ a" * 16_000 + " }}",  # likewise
        "{{ a }}" * (MAX_TAGS + 1),
        "{# no end" * 7_000,
    ],
    ids=range(28),
)
def test_what_could_reach_out_or_never_end_is_no_template(text: str) -> None:
    assert "line 1: " in problem(text)


@pytest.mark.parametrize("text", ["{{ a", "{% if a %}", "{% endif %}", "{{ 'geheim' 1 }}", "{{ a geheim }}"])
def test_what_is_not_well_formed_is_named_by_its_line_and_not_repeated(text: str) -> None:
    said = problem(f"one\n{text}")
    assert said.startswith("line ")
    assert SECRET not in said


def test_all_that_is_missing_is_named_once() -> None:
    failed = failure(
        {"rows": [{"name": SECRET}], "order": {"id": SECRET}},
        subject="{{ a }} {{ order.id }}",
        text="{{ a }} {{ order.total }} {{ b.c.d }} {% for row in rows %}{{ row.price }}{% endfor %}",
        html="{{ e | upper }} {{ f|default('x') }}{{ 'x'|replace(g, 1) }}",
    )
    assert failed.missing == ("a", "order.total", "b.c.d", "row.price", "e", "g")
    assert failed.violations == ()


@pytest.mark.parametrize("name", ["items", "keys", "pop", "__class__", "get", "update"])
@pytest.mark.parametrize("text", ["{{ a.NAME }}", "{{ a['NAME'] }}", "{% for x in a.NAME %}{{ x }}{% endfor %}"])
def test_no_name_of_python_is_a_name_of_an_object(name: str, text: str) -> None:
    failure({"a": {"b": SECRET}}, text="x" + text.replace("NAME", name))


@pytest.mark.parametrize("text", ["{% if a.items %}{% endif %}", "{{ a.items|upper }}", "{{ a.b }}{{ a.items }}"])
def test_a_name_that_the_engine_itself_asks_for_is_missing_like_any_other(text: str) -> None:
    assert failure({"a": {"b": SECRET}}, text=text).missing == ("a.items",)
    assert rendered({"a": {"b": 1}}, text="{{ a.items is defined }}{% for k, v in a|items %}{{ k }}{% endfor %}")


@pytest.mark.parametrize("name", ["append", "index", "__len__"])
def test_no_name_of_python_is_a_name_of_a_list(name: str) -> None:
    failure({"a": [SECRET]}, text=f"{{{{ a.{name} }}}}")


@pytest.mark.parametrize(
    "parts",
    [
        {"subject": "a {{ a }}"},
        {"reply_to": "{{ a }}"},
        {"sender": "{{ a }} <a@example.com>"},
        {"headers": {"X-A": "{{ a }}"}},
    ],
    ids=["subject", "reply_to", "sender", "headers"],
)
@pytest.mark.parametrize("ending", ["\n", "\r", "\r\n", "\u2028", "\x85"])
def test_no_value_ends_a_line_of_a_header(parts: dict[str, Any], ending: str) -> None:
    failed = failure({"a": f"{SECRET}{ending}Bcc: a@example.com"}, **parts)
    assert [violation.field for violation in failed.violations] == [f"email.{next(iter(parts))}"]


def test_what_has_a_nul_is_not_rendered() -> None:
    assert failure({}, text='x{{ "\\u0000" }}').violations


@pytest.mark.parametrize(
    ("text", "variables"),
    [
        ("{% for a in l %}{% for b in l %}{% endfor %}{% endfor %}", {"l": [1] * 1000}),
        ("{% set a = 'x' %}" + "{% set a = a ~ a %}" * 60, {}),
        ("{% set a = 'x' %}" + "{% set a %}{{ a }}{{ a }}{% endset %}" * 60, {}),
        ("{% set a = 'xy' %}" + "{% set a = a|replace('x', a) %}" * 60, {}),
        ("{{ '%999999999d'|format(1) }}", {}),
        ("{% for a in l %}{% if 7 in l %}{% endif %}{% endfor %}", {"l": [1] * 1000}),
        ("{% for a in l %}{{ l|join }}{% endfor %}", {"l": [1] * 1000}),
    ],
)
def test_work_and_growth_have_an_end(text: str, variables: Any) -> None:
    (found,) = failure(variables, text=text).violations
    assert found.problem.endswith("takes too much work")


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"])))
def test_in_html_no_value_becomes_markup_and_elsewhere_it_stands_as_it_is(value: str) -> None:
    found = rendered({"a": value}, text="a{{ a }}", html='<a href="{{ a }}">{{ a }}</a>')
    assert found["text"] == f"a{value}"
    assert not set("<>\"'").intersection(
        found["html"].replace('<a href="', "").replace('">', "", 1).replace("</a>", "")
    )


def test_the_fields_are_those_of_the_contract() -> None:
    messages = {"EMAIL": "EmailContent", "SMS": "SmsContent", "PUSH": "PushContent"}
    for channel, message in messages.items():
        fields = notification_pb2.DESCRIPTOR.message_types_by_name[message].fields
        assert [field.name for field in fields] == list(EMPTY[channel])


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "1",
        "{",
        "nonsense",
        '{"a": NaN}',
        '{"a": 1e999}',
        '{"a": Infinity}',
        '{"a": 1, "a": 2}',
        '{"a": {"b": 1, "b": 2}}',
        '{"a": "\\u0000"}',
        '{"\\u0000": 1}',
        '{"a": "\\ud800"}',
        '{"a": 9223372036854775808}',
        '{"a": ' + "9" * 5000 + "}",
        "[" * 60_000,
        '{"a":' * 11 + "1" + "}" * 11,
        json.dumps({"a": [0] * 2_000}),
        json.dumps({str(number): 0 for number in range(101)}),
        json.dumps({"a": "x" * 65_536}),
    ],
    ids=range(19),
)
def test_what_are_no_variables_is_refused(text: str) -> None:
    with pytest.raises(VariablesInvalid):
        canonical_variables(text)


def test_no_variables_are_an_empty_object() -> None:
    assert canonical_variables("") == canonical_variables(" {} ") == "{}"
    assert canonical_variables('{"a":' * 10 + "1" + "}" * 10)


class Texts:
    """A table of versions that counts how often it is read."""

    def __init__(self) -> None:
        self.reads = 0

    async def read_variants(self, versions: Any) -> Any:
        self.reads += 1
        return {ref: ("en", {"en": {"text": "Hello {{ a }} " + "x" * 1000}}) for ref in versions}


USE = TemplateUse("t", None, None, '{"a":"b"}')


def ref(number: int) -> VersionRef:
    return VersionRef(UUID(int=number), 1, "SMS")


async def test_versions_are_kept_as_long_as_there_is_room() -> None:
    texts = Texts()
    renderer = Renderer(texts, max_kept=2)
    for number, reads in ((1, 1), (2, 2), (1, 2), (3, 3), (1, 3), (2, 4)):
        await renderer.render_all({"k": (ref(number), USE)})
        assert texts.reads == reads
    small = Renderer(texts, max_source=1_500)
    for _ in range(2):
        for number in (1, 2):
            assert not isinstance((await small.render_all({"k": (ref(number), USE)}))["k"], ApiError)
    assert texts.reads == 8


async def test_one_that_fails_fails_alone() -> None:
    wanted = {number: (ref(1), replace(USE, variables='{"a":1}' if number else "{}")) for number in range(3)}
    answers = await Renderer(Texts()).render_all(wanted)
    assert [isinstance(answers[number], ApiError) for number in range(3)] == [True, False, False]


def test_a_field_that_a_stored_variant_does_not_know_is_empty() -> None:
    version = Version(VersionRef(ref(1).template, 1, "EMAIL"), "en", {"en": {"subject": "a", "text": "b"}})
    assert version.render(USE).content == {"subject": "a", "text": "b"}
