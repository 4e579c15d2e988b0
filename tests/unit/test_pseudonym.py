"""What stands for an address: one for all its spellings, another for everybody else."""

import pytest

from shared.pseudonym import LENGTH, pseudonym

SECRET = b"a secret key of at least 32 bytes"
ADA = (SECRET, "default", "EMAIL", "ada@example.com")


def test_it_is_what_it_always_was() -> None:
    """It is stored: another form would find no opt-out of those who were erased."""
    assert pseudonym(*ADA) == "b2e51766d77ddc391ca6651767d004a3"


def test_every_spelling_of_a_mail_address_has_the_one_and_of_nothing_else() -> None:
    assert pseudonym(SECRET, "default", "EMAIL", "Ada@example.com") == pseudonym(*ADA)
    assert pseudonym(SECRET, "default", "PUSH", "Ada") != pseudonym(SECRET, "default", "PUSH", "ada")
    assert pseudonym(SECRET, "default", "EMAIL", "\u00c4da@example.com") != pseudonym(
        SECRET, "default", "EMAIL", "\u00e4da@example.com"
    )  # as in the database


@pytest.mark.parametrize(
    "other",
    [
        (b"another secret key of 32 bytes or more", *ADA[1:]),
        (SECRET, "other", *ADA[2:]),
        (SECRET, "default", "PUSH", "ada@example.com"),
        (SECRET, "default", "EMAIL", "bob@example.com"),
    ],
)
def test_another_installation_tenant_channel_or_address_has_another(other: tuple[bytes, str, str, str]) -> None:
    assert pseudonym(*other) != pseudonym(*ADA)
    assert len(pseudonym(*other)) == LENGTH
    assert set(pseudonym(*other)) <= set("0123456789abcdef")
