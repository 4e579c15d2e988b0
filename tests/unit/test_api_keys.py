"""API keys as they are written: what is one, what is not, and what of it is kept."""

import re

import pytest

from shared.api_keys import ApiKey

ID, SECRET = "0123456789ab", "0123456789abcdef" * 4


def test_a_new_key_reads_as_it_is_written() -> None:
    key = ApiKey.new()
    assert re.fullmatch(r"nq_[0-9a-f]{12}_[0-9a-f]{64}", key.reveal())
    assert ApiKey.parse(key.reveal()) == key


def test_no_two_keys_are_alike() -> None:
    made = [ApiKey.new() for _ in range(1_000)]
    assert len({key.id for key in made}) == len({key.secret for key in made}) == 1_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        f"nq_{ID}",
        f"nq_{ID}_",
        f"nq_{ID}_{SECRET[1:]}",
        f"nq_{ID}_{SECRET}0",
        f"nq_{ID[1:]}_{SECRET}",
        f"nq_{ID}_{SECRET.upper()}",
        f"NQ_{ID}_{SECRET}",
        f"nq_{ID}_{SECRET}\n",
        f" nq_{ID}_{SECRET}",
        f"nq-{ID}-{SECRET}",
        f"nq_{ID}_{SECRET[:-1]}٣",
    ],
)
def test_what_is_not_written_so_is_no_key(text: str) -> None:
    assert ApiKey.parse(text) is None


def test_what_is_kept_is_a_hash_of_the_secret_alone() -> None:
    one, other = ApiKey(ID, SECRET), ApiKey("ba9876543210", SECRET)
    assert one.secret_hash() == other.secret_hash()
    assert len(one.secret_hash()) == 32
    assert one.secret_hash() != ApiKey(ID, SECRET[::-1]).secret_hash()


def test_a_key_that_is_shown_shows_no_secret() -> None:
    assert SECRET not in f"{ApiKey(ID, SECRET)} {ApiKey(ID, SECRET)!r}"
