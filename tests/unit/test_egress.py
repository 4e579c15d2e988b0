"""Where webhooks may not go, in every form in which it can be written."""

import socket
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.dispatcher.egress import FORBIDDEN_V4, AddressBlocked, Egress, GuardedResolver, parse_networks

CLOSED = Egress()

FORBIDDEN = [
    # this host, private networks, shared address space
    "0.0.0.1", "0.1.2.3", "127.0.0.1", "127.255.255.255", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "100.64.0.1", "100.127.255.255",
    # cloud metadata and host services
    "169.254.169.254", "169.254.170.2", "168.63.129.16",
    # protocol assignments, documentation, benchmarks, relays
    "192.0.0.8", "192.0.0.170", "192.0.2.1", "192.31.196.1", "192.52.193.1", "192.88.99.1", "192.175.48.1",
    "198.18.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1",
    # multicast, reserved, broadcast
    "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
    # IPv6: this host, and IPv4 inside it: mapped, compatible, SIIT, NAT64, 6to4, Teredo
    "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:168.63.129.16", "::7f00:1",
    "::ffff:0:7f00:1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::808:808", "64:ff9b:1::1", "2002:7f00:1::",
    "2002:808:808::", "2001::1", "2001:0:7f00:1::", "2001:1::1", "2001:2::1", "2001:10::1", "2001:20::1",
    # discard, documentation, segment routing, AS112, unique, link and site local, multicast
    "100::1", "2001:db8::1", "3fff::1", "5f00::1", "2620:4f:8000::1", "fc00::1", "fd00:ec2::254", "fe80::1",
    "fe80::1%eth0", "fec0::1", "ff02::1", "ff0e::1", "4000::1", "1fff::1",
]  # fmt: skip
PERMITTED = [
    "1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.15.0.1", "172.32.0.1", "192.167.1.1", "198.17.0.1",
    "223.255.255.255", "168.63.129.15", "2606:4700::1111", "2a00:1450::1", "2001:4860:4860::8888", "::ffff:8.8.8.8",
    "2001:200::1",
]  # fmt: skip


@pytest.mark.parametrize("address", FORBIDDEN)
def test_a_forbidden_address_is_refused_wherever_it_turns_up(address: str) -> None:
    assert not CLOSED.permits(ip_address(address))
    assert not CLOSED.permits_host(address)
    with pytest.raises(AddressBlocked):
        CLOSED.check(address)
    with pytest.raises(AddressBlocked):
        CLOSED.open_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80)))


@pytest.mark.parametrize("address", PERMITTED)
def test_a_public_address_is_permitted(address: str) -> None:
    assert CLOSED.permits(ip_address(address))
    assert CLOSED.permits_host(address)


@given(address=st.ip_addresses(v=4))
def test_ipv4_inside_ipv6_is_judged_as_itself(address: object) -> None:
    assert CLOSED.permits(ip_address(f"::ffff:{address}")) == CLOSED.permits(ip_address(str(address)))


@given(address=st.ip_addresses(v=6))
def test_only_global_unicast_of_ipv6_is_permitted(address: object) -> None:
    if CLOSED.permits(ip_address(str(address))):
        judged = ip_address(str(address))
        assert judged in ip_network("2000::/3") or judged in ip_network("::ffff:0:0/96")


@pytest.mark.parametrize("network", FORBIDDEN_V4, ids=str)
def test_a_network_is_forbidden_from_its_first_to_its_last_address(network: object) -> None:
    block = ip_network(str(network))
    assert not CLOSED.permits(block[0])
    assert not CLOSED.permits(block[-1])


@pytest.mark.parametrize(
    "host",
    ["2130706433", "0x7f000001", "127.1", "0177.0.0.1", "127.0.0.1.", "0x7f.1", "0X7F.0.0.1", "1", "a.0x", "%31.1"],
)
def test_an_address_in_another_spelling_is_no_host(host: str) -> None:
    assert not CLOSED.permits_host(host)


@pytest.mark.parametrize("host", ["example.com", "example.com.", "a1", "1a.2b", "xn--bcher-kva.example", "0x7g"])
def test_a_name_is_judged_when_it_is_looked_up(host: str) -> None:
    assert CLOSED.permits_host(host)


def test_what_the_installation_allows_is_permitted_and_nothing_beside_it() -> None:
    egress = Egress(parse_networks("127.0.0.1/32, fd00::/8,10.1.0.0/16"))
    for address in ("127.0.0.1", "::ffff:127.0.0.1", "fd12::1", "10.1.2.3"):
        assert egress.permits(ip_address(address))
    for address in ("127.0.0.2", "::1", "fc00::1", "10.2.0.1", "::7f00:1", "64:ff9b::7f00:1"):
        assert not egress.permits(ip_address(address))


@pytest.mark.parametrize("text", ["127.0.0.1/33", "localhost", "127.0.0.1/8", "10.0.0.0/8;127.0.0.1", "1"])
def test_what_is_no_list_of_networks_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_networks(text)


async def test_a_name_is_refused_whole_if_one_of_its_addresses_is_forbidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in ("1.1.1.1", "10.0.0.1")]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    resolver = GuardedResolver(CLOSED)
    try:
        with pytest.raises(AddressBlocked):
            await resolver.resolve("rebound.example", 443)
    finally:
        await resolver.close()


async def test_a_name_is_answered_in_numbers_so_that_nobody_looks_it_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def look_up(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [
            (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2606:4700::1111", 443, 0, 0)),
            (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("1.1.1.1", 443)),
        ]

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    resolver = GuardedResolver(CLOSED)
    try:
        answers = await resolver.resolve("example.com", 443)
    finally:
        await resolver.close()
    assert [(answer["host"], answer["port"], answer["family"]) for answer in answers] == [
        ("2606:4700::1111", 443, socket.AF_INET6),
        ("1.1.1.1", 443, socket.AF_INET),
    ]
    assert all(answer["flags"] & socket.AI_NUMERICHOST for answer in answers)
