"""What is sealed can be opened by whom it was sealed for, and by nobody else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.vault import SealBroken, Vault

KEY = b"a secret key for tests, 32 bytes"
VAULT = Vault(KEY, "purpose")
SEALED = VAULT.seal(b"plain", bound_to=b"here")

# Made once and kept: what lies in databases must still be opened by later versions.
KEPT = bytes.fromhex("01000102030405060708090a0bfc3e97bb17a4811475cf815c899989300a0644a656")


@given(plain=st.binary(max_size=100), bound_to=st.binary(max_size=20))
def test_what_was_sealed_can_be_opened(plain: bytes, bound_to: bytes) -> None:
    assert VAULT.open(VAULT.seal(plain, bound_to=bound_to), bound_to=bound_to) == plain


def test_another_process_with_the_same_key_opens_it() -> None:
    assert Vault(KEY, "purpose").open(SEALED, bound_to=b"here") == b"plain"


def test_what_an_earlier_version_sealed_can_be_opened() -> None:
    assert Vault(b"k" * 32, "golden").open(KEPT, bound_to=b"here") == b"plain"


@pytest.mark.parametrize(
    ("vault", "bound_to"),
    [
        pytest.param(Vault(KEY[::-1], "purpose"), b"here", id="another key"),
        pytest.param(Vault(KEY, "purposes"), b"here", id="another purpose"),
        pytest.param(VAULT, b"there", id="another binding"),
        pytest.param(VAULT, b"", id="no binding"),
    ],
)
def test_it_opens_only_with_its_key_purpose_and_binding(vault: Vault, bound_to: bytes) -> None:
    with pytest.raises(SealBroken):
        vault.open(SEALED, bound_to=bound_to)


@given(bit=st.integers(0, len(SEALED) * 8 - 1))
def test_a_changed_bit_breaks_the_seal(bit: int) -> None:
    changed = bytearray(SEALED)
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SealBroken):
        VAULT.open(bytes(changed), bound_to=b"here")


@pytest.mark.parametrize("length", range(len(SEALED)))
def test_a_missing_end_breaks_the_seal(length: int) -> None:
    with pytest.raises(SealBroken):
        VAULT.open(SEALED[:length], bound_to=b"here")


def test_an_added_end_breaks_the_seal() -> None:
    with pytest.raises(SealBroken):
        VAULT.open(SEALED + b"\0", bound_to=b"here")


@given(text=st.binary(max_size=60))
def test_anything_else_is_a_broken_seal(text: bytes) -> None:
    with pytest.raises(SealBroken):
        VAULT.open(b"\x01" + text)


def test_a_seal_shows_neither_the_plain_text_nor_its_binding() -> None:
    sealed = VAULT.seal(b"attack at dawn", bound_to=b"tenant of ours")
    assert b"attack" not in sealed
    assert b"tenant" not in sealed


def test_the_same_sealed_twice_looks_different() -> None:
    assert VAULT.seal(b"plain") != VAULT.seal(b"plain")


def test_a_short_key_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 32 bytes"):
        Vault(KEY[:-1], "purpose")
