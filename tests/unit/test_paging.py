"""Page tokens: they lead on in the list that they were made for, and in no other."""

import base64
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import PageTokenInvalid, RequestInvalid
from shared.paging import DEFAULT_SIZE, MAX_SIZE, NEWEST, Page, Pages

KEY = b"a secret key for tests, 32 bytes"
PAGES = Pages(KEY, "notifications")
END = UUID("0192f0c1-7e6a-7b1c-8000-0123456789ab")
TOKEN = PAGES.token("tenant", b"filter", END)


def read(
    token: str, *, pages: Pages = PAGES, tenant: str = "tenant", filter_: bytes = b"filter", size: int = 10
) -> Page:
    return pages.read(tenant, filter_, size, token)


def test_the_first_page_begins_with_the_newest() -> None:
    assert read("") == Page(10, NEWEST)
    assert UUID("ffffffff-ffff-7fff-bfff-ffffffffffff") < NEWEST


@given(st.uuids())
def test_a_token_leads_to_where_the_page_ended(end: UUID) -> None:
    assert read(PAGES.token("tenant", b"filter", end)) == Page(10, end)


def test_a_token_serves_on_every_process_with_the_same_key() -> None:
    assert read(TOKEN, pages=Pages(KEY, "notifications")).before == END


def test_the_size_may_change_from_page_to_page() -> None:
    assert read(TOKEN, size=3) == Page(3, END)


@pytest.mark.parametrize(
    ("asked", "size"),
    [(0, DEFAULT_SIZE), (1, 1), (MAX_SIZE, MAX_SIZE), (MAX_SIZE + 1, MAX_SIZE), (2**31 - 1, MAX_SIZE)],
)
def test_a_page_has_the_size_that_was_asked_for_within_the_bounds(asked: int, size: int) -> None:
    assert read("", size=asked).size == size


def test_a_negative_size_is_refused_by_name() -> None:
    with pytest.raises(RequestInvalid, match="page_size"):
        read("", size=-1)


@pytest.mark.parametrize(
    ("pages", "tenant", "filter_"),
    [
        pytest.param(PAGES, "other", b"filter", id="another tenant"),
        pytest.param(PAGES, "tenant", b"", id="another filter"),
        pytest.param(PAGES, "tenantf", b"ilter", id="the same letters otherwise divided"),
        pytest.param(Pages(KEY, "endpoints"), "tenant", b"filter", id="another list"),
        pytest.param(Pages(KEY[::-1], "notifications"), "tenant", b"filter", id="another key"),
    ],
)
def test_a_token_serves_only_its_own_list(pages: Pages, tenant: str, filter_: bytes) -> None:
    with pytest.raises(PageTokenInvalid):
        read(TOKEN, pages=pages, tenant=tenant, filter_=filter_)


@given(st.text(min_size=1))
def test_anything_else_is_no_token(text: str) -> None:
    with pytest.raises(PageTokenInvalid):
        read(text)


@given(st.integers(0, len(TOKEN) - 1))
def test_a_part_of_a_token_is_no_token(length: int) -> None:
    with pytest.raises(PageTokenInvalid):
        read(TOKEN[:length] or "=")


@given(st.integers(0, len(TOKEN)), st.characters(codec="utf-8"))
def test_a_token_with_one_character_more_is_no_token(place: int, more: str) -> None:
    with pytest.raises(PageTokenInvalid):
        read(TOKEN[:place] + more + TOKEN[place:])


def test_a_token_in_the_other_alphabet_is_no_token() -> None:
    token = next(token for token in iter(lambda: PAGES.token("tenant", b"filter", END), "") if "-" in token)
    with pytest.raises(PageTokenInvalid):
        read(token.replace("-", "+"))


def test_a_token_can_stand_in_a_url_and_shows_no_id() -> None:
    assert TOKEN.replace("-", "").replace("_", "").rstrip("=").isalnum()
    assert END.bytes not in base64.urlsafe_b64decode(TOKEN)
