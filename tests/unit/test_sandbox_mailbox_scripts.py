"""Scripts in addresses: what they say, and when each of their steps is over."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox import fcm, resend, scripts, twilio
from sandbox.scripts import ACCEPT, HTTP_WORDS, PHONE_WORDS, SMTP_WORDS, Action, Kind, Stage


def _played(text: str, times: int) -> list[str]:
    script = scripts.of_address(text, SMTP_WORDS)
    return [str(script.action(number)) for number in range(1, times + 1)]


@pytest.mark.parametrize(
    ("address", "played"),
    [
        ("anna@example.org", ["accept", "accept"]),
        ("550@example.org", ["550", "550"]),
        ("550-5.1.1+anna@example.org", ["550-5.1.1", "550-5.1.1"]),
        ("anna+550-5.1.1@example.org", ["550-5.1.1", "550-5.1.1"]),
        ("451x2+anna@example.org", ["451", "451", "accept", "accept"]),
        ("451x2+421@example.org", ["451", "451", "421", "421"]),
        ("451x1+close-after-dotx1+anna@example.org", ["451", "accept-then-close", "accept"]),
        ("dot-554-5.7.1@example.org", ["dot-554-5.7.1"]),
        ("data-451x1@example.org", ["data-451", "accept"]),
        ("hang@example.org", ["hang"]),
        ("BOUNCE@example.org", ["550-5.1.1"]),
        ("reject@example.org", ["dot-554-5.7.1"]),
        ("down@example.org", ["421"]),
        ("close-before-dot@example.org", ["close"]),
        ("accept-then-hang@example.org", ["accept-then-hang"]),
        # Names, not steps.
        ("x2@example.org", ["accept"]),
        ("5500@example.org", ["accept"]),
        ("250@example.org", ["accept"]),
        ("199@example.org", ["accept"]),
        ("451x0@example.org", ["accept"]),
        ("refuse@example.org", ["accept"]),
        ("bounces@example.org", ["accept"]),
        ("anna@550.example.org", ["accept"]),
        ("+15550100", ["accept"]),
    ],
)
def test_plays(address: str, played: list[str]) -> None:
    assert _played(address, len(played)) == played


def test_parts() -> None:
    (step,) = scripts.parse("dot-554-5.7.1x3", SMTP_WORDS).steps
    assert step.action == Action(Kind.REFUSE, Stage.DOT, 554, "5.7.1")
    assert step.times == 3


def test_a_plus_in_a_query_arrives_as_a_blank() -> None:
    assert scripts.parse("500x2 410", HTTP_WORDS) == scripts.parse("500x2+410", HTTP_WORDS)


@pytest.mark.parametrize(("word", "status"), [("bounce", 422), ("reject", 400), ("throttle", 429), ("down", 503)])
def test_words_mean_what_the_protocol_has(word: str, status: int) -> None:
    assert scripts.parse(word, HTTP_WORDS).action(1).code == status
    assert scripts.parse(word, SMTP_WORDS).action(1).code in (421, 454, 550, 554)


@pytest.mark.parametrize("words", [SMTP_WORDS, HTTP_WORDS])
def test_every_word_stands_for_a_step(words: dict[str, str]) -> None:
    assert all(scripts.parse(meaning, {}).steps for meaning in words.values())


@settings(deadline=None)
@given(st.text(max_size=50), st.integers(1, 1000))
def test_any_text_is_a_script(text: str, number: int) -> None:
    assert isinstance(scripts.of_address(text, SMTP_WORDS).action(number), Action)


actions = st.sampled_from(["550", "550-5.1.1", "data-451", "dot-554", "hang", "close", "accept-then-close"])
steps = st.lists(st.tuples(actions, st.integers(1, 5)), max_size=5)


@settings(deadline=None)
@given(steps)
def test_steps_are_played_in_turn(steps: list[tuple[str, int]]) -> None:
    text = "+".join(f"{what}x{times}" for what, times in steps)
    script = scripts.parse(text, SMTP_WORDS)
    expected = [what for what, times in steps for _ in range(times)]
    assert [str(script.action(number + 1)) for number in range(len(expected))] == expected
    assert script.action(len(expected) + 1) == ACCEPT


@pytest.mark.parametrize(
    ("address", "script"),
    [
        ("429x2+phone-1", "429x2"),
        ("hang", "hang"),
        ("+12025550100", "accept"),
        ("+12025550110", "bounce"),
        ("+12025550121", "rejectx1"),
        ("+12025550132", "throttlex2"),
        ("+19175550143", "425x3"),
        ("+12025550154", "downx4"),
        ("+12025550165", "hangx5"),
        ("+12025550176", "closex6"),
        ("+12025550187", "accept-then-hangx7"),
        ("+12025550199", "accept-then-closex9"),
    ],
)
def test_tokens_and_fictitious_numbers_carry_scripts(address: str, script: str) -> None:
    assert scripts.of_address(address, HTTP_WORDS) == scripts.parse(script, HTTP_WORDS)


@pytest.mark.parametrize("address", ["+447700900132", "+12025551132", "+15550132", "+442025550132", "token:429x2"])
def test_other_tokens_and_numbers_carry_none(address: str) -> None:
    assert not scripts.of_address(address, HTTP_WORDS).steps


PAGE = Path(__file__).resolve().parents[2] / "docs/sandbox.md"
SERVERS: dict[str, scripts.Words] = {
    "smtp": SMTP_WORDS,
    "resend": resend.WORDS,
    "twilio": twilio.WORDS,
    "fcm": fcm.WORDS,
    "mock, webhooks": HTTP_WORDS,
}


def _table(name: str) -> list[list[str]]:
    _, _, rest = PAGE.read_text().partition(f"<!-- {name} -->\n")
    lines = rest.partition("<!-- end -->")[0].splitlines()
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in (lines[0], *lines[2:])]


def test_every_server_knows_the_same_words_and_answers_them_as_the_page_says() -> None:
    head, *rows = _table("words")
    said = {row[0]: dict(zip(head[2:], row[2:], strict=True)) for row in rows}
    played = {
        word: {name: str(scripts.parse(word, words).action(1)) for name, words in SERVERS.items()}
        for word in HTTP_WORDS
    }
    assert said == played


def test_numbers_mean_what_the_page_says() -> None:
    assert _table("numbers")[1:] == [[str(digit), what] for digit, what in enumerate(PHONE_WORDS)]


@pytest.mark.parametrize("words", SERVERS.values(), ids=SERVERS)
@pytest.mark.parametrize("step", ["429", "503", "accept", "hang", "close", "accept-then-hang", "accept-then-close"])
def test_every_server_plays_the_same_steps(words: scripts.Words, step: str) -> None:
    assert str(scripts.parse(f"{step}x1", words).action(1)) == step
