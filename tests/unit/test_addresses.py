"""Addresses have one spelling each."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.scheduler.addresses import canonical_email, canonical_mailbox

DOMAIN_OF_188 = ".".join(["d" * 62] * 3)

# Whatever people write into forms, and what they mean by it.
addresses = st.one_of(
    st.emails(),
    st.text(max_size=60),
    st.builds("{}@{}".format, st.text(max_size=20), st.text(max_size=30)),
    st.builds("{}@{}.example".format, st.text(min_size=1, max_size=10), st.text(st.characters(min_codepoint=0xC0))),
)
mailboxes = st.one_of(
    addresses,
    st.builds("{} <{}>".format, st.text(max_size=30), addresses),
    st.builds('"{}" <{}>'.format, st.text(max_size=30), addresses),
)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("someone@example.com", "someone@example.com"),
        ("someone@EXAMPLE.Com", "someone@example.com"),
        ("someone@bücher.example", "someone@xn--bcher-kva.example"),
        ("someone@BÜCHER.example", "someone@xn--bcher-kva.example"),
        ("someone@xn--bcher-kva.example", "someone@xn--bcher-kva.example"),
        ("someone@XN--BCHER-KVA.example", "someone@xn--bcher-kva.example"),
        ("someone@bu\u0308cher.example", "someone@xn--bcher-kva.example"),
        ("someone@例え。example", "someone@xn--r8jz45g.example"),
    ],
)
def test_every_spelling_of_a_domain_is_one_domain(written: str, canonical: str) -> None:
    assert canonical_email(written) == canonical


@pytest.mark.parametrize("address", ["First.Last@example.com", "first+tag@example.com", "o'hara_-{}@example.com"])
def test_the_local_part_is_its_hosts_business(address: str) -> None:
    assert canonical_email(address) == address


def test_a_local_part_beyond_ascii_is_composed() -> None:
    assert canonical_email("zoe\u0308@example.com") == "zo\u00eb@example.com"


def test_the_mailboxes_of_rfc_2142_have_no_case() -> None:
    assert canonical_email("PostMaster@example.com") == "postmaster@example.com"


@pytest.mark.parametrize("domain", ["localhost", "mail.local", "host.internal", "example.test", "example.invalid"])
def test_private_and_reserved_domains_are_the_providers_business(domain: str) -> None:
    assert canonical_email(f"someone@{domain}") == f"someone@{domain}"


@pytest.mark.parametrize(
    "written",
    [
        "",
        "someone",
        "@example.com",
        "someone@",
        "some one@example.com",
        " someone@example.com",
        "someone@example.com ",
        "someone@example.com\n",
        "someone@exa mple.com",
        "some..one@example.com",
        ".someone@example.com",
        "someone@-example.com",
        "someone@example..com",
        "someone@[127.0.0.1]",
        "someone@example.com, other@example.com",
        "Someone <someone@example.com>",
        "some\u2028one@example.com",
        "someone\u202e@example.com",
        '"some one"@example.com',
        '"someone"@example.com',
    ],
)
def test_what_is_no_plain_address_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="is not an email address"):
        canonical_email(written)


def test_a_local_part_has_up_to_64_characters() -> None:
    assert canonical_email("a" * 64 + "@example.com") == "a" * 64 + "@example.com"


@pytest.mark.parametrize(
    "address",
    [
        "a" * 65 + "@example.com",
        "someone@" + "d" * 64 + ".example",
        "someone@" + "ü" * 60 + ".example",  # 63 octets are exceeded once it is IDNA
        "a" * 60 + "@" + ".".join(["ü" * 44] * 4),  # and so are 254
    ],
)
def test_a_part_that_is_too_long_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match="is not an email address"):
        canonical_email(address)


def test_an_address_has_up_to_254_characters_and_more_are_refused_by_number() -> None:
    address = f"{'a' * 64}@{DOMAIN_OF_188}"
    assert canonical_email(address + "d") == address + "d"
    with pytest.raises(ValueError, match="must have at most 254 characters"):
        canonical_email(address + "dd")


@pytest.mark.parametrize("written", ["secret one@example.com", "secret@exa mple.com", "secret" * 50])
def test_a_refusal_quotes_nothing(written: str) -> None:
    with pytest.raises(ValueError, match=r"^(is not|must)") as refused:
        canonical_email(written)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("someone@EXAMPLE.com", "someone@example.com"),
        ("<someone@EXAMPLE.com>", "someone@example.com"),
        ("Someone <someone@EXAMPLE.com>", "Someone <someone@example.com>"),
        ("Someone<someone@example.com>", "Someone <someone@example.com>"),
        ("  Someone   < someone@example.com > ", "Someone <someone@example.com>"),
        ("Zoë Ångström <zoe@example.com>", "Zoë Ångström <zoe@example.com>"),
        ("J. R. Someone <someone@example.com>", "J. R. Someone <someone@example.com>"),
        ('"Someone" <someone@example.com>', "Someone <someone@example.com>"),
        ('"Example, Inc." <someone@example.com>', '"Example, Inc." <someone@example.com>'),
        ('"Zoë (sales)"<zoe@example.com>', '"Zoë (sales)" <zoe@example.com>'),
        ('"say \\"hello\\"" <someone@example.com>', '"say \\"hello\\"" <someone@example.com>'),
        ('"back\\\\slash" <someone@example.com>', '"back\\\\slash" <someone@example.com>'),
        ('"\\S\\omeone" <someone@example.com>', "Someone <someone@example.com>"),
        ('"a <b@example.com>" <someone@example.com>', '"a <b@example.com>" <someone@example.com>'),
        ('"" <someone@example.com>', "someone@example.com"),
        ("Zoë <zoë@bücher.example>", "Zoë <zoë@xn--bcher-kva.example>"),
    ],
)
def test_a_mailbox_is_quoted_where_it_must_be(written: str, canonical: str) -> None:
    assert canonical_mailbox(written) == canonical


@pytest.mark.parametrize(
    "written",
    [
        "Example, Inc. <someone@example.com>",
        'Some"one <someone@example.com>',
        '"Someone <someone@example.com>',
        '"Some" one <someone@example.com>',
        "Someone <someone@example.com> (sales)",
        "Someone <someone@example.com>, Other <other@example.com>",
        "other@example.com <someone@example.com>",
        "<someone@example.com",
        "Someone <<someone@example.com>>",
    ],
)
def test_a_name_that_could_be_another_address_must_be_quoted(written: str) -> None:
    with pytest.raises(ValueError, match="must be one address, or Name <address>"):
        canonical_mailbox(written)


@pytest.mark.parametrize("written", ["", "Someone", "Someone <>", "Someone <some one@example.com>"])
def test_a_mailbox_needs_an_address(written: str) -> None:
    with pytest.raises(ValueError, match="is not an email address"):
        canonical_mailbox(written)


@pytest.mark.parametrize("written", ["a" + " " * 60_000 + '"<a@example.com>', '"' + "\\ " * 30_000 + "<a@example.com>"])
def test_a_long_name_costs_no_more_than_reading_it(written: str) -> None:
    with pytest.raises(ValueError, match="must be one address"):  # a quadratic pattern would not come back
        canonical_mailbox(written)


@settings(deadline=None)
@given(addresses)
def test_a_canonical_address_is_its_own_canonical_form(written: str) -> None:
    try:
        canonical = canonical_email(written)
    except ValueError:
        return
    assert canonical_email(canonical) == canonical


@settings(deadline=None)
@given(mailboxes)
def test_a_canonical_mailbox_is_its_own_canonical_form(written: str) -> None:
    try:
        canonical = canonical_mailbox(written)
    except ValueError:
        return
    assert canonical_mailbox(canonical) == canonical


@settings(deadline=None)
@given(st.emails())
def test_the_case_of_a_domain_decides_nothing(address: str) -> None:
    local, _, domain = address.rpartition("@")
    assert canonical_email(f"{local}@{domain.upper()}") == canonical_email(f"{local}@{domain.lower()}")
