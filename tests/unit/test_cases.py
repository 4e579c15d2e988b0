"""docs/cases.md answers each rule once: with tests that exist, or with a reason."""

from tests.pages import LINK, Page

PAGE = Page("cases.md", "| no. | rule | here | shown by, or why not |")
RULES = [*map(str, range(1, 31)), *(f"31{part}" for part in "abcdef")]
HELD, PARTLY, OPEN, ELSEWHERE = "held", "partly", "open", "not here"


def test_each_rule_is_answered_once_in_its_order() -> None:
    assert [row[0] for row in PAGE.rows()] == RULES


def test_what_is_held_names_its_tests_and_all_else_says_why() -> None:
    wrong = []
    for number, rule, here, shown in PAGE.rows():
        tests = any(link.is_test for link in PAGE.links(shown))
        why = bool(LINK.sub("", shown).strip(" ,."))
        fits = {HELD: tests, PARTLY: tests and why, OPEN: why, ELSEWHERE: why}
        if not rule or not fits.get(here, False):
            wrong.append(number)
    assert wrong == []


def test_everything_that_is_linked_exists() -> None:
    links = PAGE.links()
    assert len([link for link in links if link.is_test]) > 50
    assert [link for link in links if not link.path.exists() or not link.is_there] == []
