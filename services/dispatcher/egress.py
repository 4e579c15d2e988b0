"""Where webhooks may go: not into the network that the dispatcher stands in. Judged on every address that is dialled.

An explicit list, because the flags of `ipaddress` differ between Python versions, and call multicast, 6to4, NAT64 and
cloud metadata global.
"""

import asyncio
import re
import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from aiohttp import AddrInfoType
from aiohttp.abc import AbstractResolver, ResolveResult

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# IANA's special-purpose registry for IPv4, multicast, the former class E, 6to4's relays, and Azure's host service.
FORBIDDEN_V4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "168.63.129.16/32", "169.254.0.0/16",
        "172.16.0.0/12", "192.0.0.0/24", "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24",
        "192.168.0.0/16", "192.175.48.0/24", "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4",
        "240.0.0.0/4",
    )
)  # fmt: skip
# Global unicast, less what stands in it for something else. All else is refused: every form of embedded IPv4, NAT64,
# unique and link local, multicast.
GLOBAL_V6 = IPv6Network("2000::/3")
FORBIDDEN_V6 = tuple(
    IPv6Network(block) for block in ("2001::/23", "2001:db8::/32", "2002::/16", "2620:4f:8000::/48", "3fff::/20")
)

# `127.1`, `0x7f.1` and `2130706433` are addresses to some resolvers and names to some checks.
NUMERIC_LABEL = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*", re.ASCII)

RESOLVE_TIMEOUT = 5.0
LOOKUPS = 64


class AddressBlocked(OSError):
    """An address that webhooks may not go to."""


class LookupTimedOut(OSError):
    """No answer about a name. No TimeoutError, which aiohttp takes for the end of the whole request."""


class Egress:
    """The list, less what the installation allows."""

    def __init__(self, allowed: Iterable[Network] = ()) -> None:
        self._allowed = tuple(allowed)

    def permits(self, address: Address) -> bool:
        if isinstance(address, IPv6Address) and address.ipv4_mapped:
            address = address.ipv4_mapped
        if any(address in network for network in self._allowed):
            return True
        if isinstance(address, IPv4Address):
            return not any(address in network for network in FORBIDDEN_V4)
        return address in GLOBAL_V6 and not any(address in network for network in FORBIDDEN_V6)

    def permits_host(self, host: str) -> bool:
        """What can be said of a host before it is looked up: an address is judged, and must be written as one."""
        try:
            return self.permits(ip_address(host))
        except ValueError:
            return not NUMERIC_LABEL.fullmatch(host.rstrip(".").rpartition(".")[2])

    def check(self, address: str) -> None:
        """Raises AddressBlocked."""
        if not self.permits(ip_address(address)):
            raise AddressBlocked

    def open_socket(self, info: AddrInfoType) -> socket.socket:
        """What the connector dials with. A host that is an address never meets the resolver, but it comes here."""
        family, kind, protocol, _, place = info
        self.check(str(place[0]))
        return socket.socket(family, kind, protocol)


def parse_networks(text: str) -> tuple[Network, ...]:
    """CIDRs with commas in between. Raises ValueError."""
    return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())


class GuardedResolver(AbstractResolver):
    """Looks a name up once, and refuses it whole if one of its addresses is forbidden: the next look might choose it.

    The connector dials what is answered here, so that no second lookup can answer something else.
    """

    def __init__(self, egress: Egress) -> None:
        self._egress = egress
        # Of its own: lookups that hang must not hold up whatever else the process does in threads.
        self._threads = ThreadPoolExecutor(LOOKUPS, "resolver")

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Raises AddressBlocked, LookupTimedOut, or the OSError of the lookup."""
        lookup = asyncio.get_running_loop().run_in_executor(self._threads, _look_up, host, port, family)
        try:
            found = await asyncio.wait_for(lookup, RESOLVE_TIMEOUT)
        except TimeoutError:
            raise LookupTimedOut from None
        for answer in found:
            self._egress.check(answer["host"])
        return found

    async def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)


def _look_up(host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
    infos = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    return [
        ResolveResult(
            hostname=host,
            host=str(place[0]),
            port=port,
            family=kind,
            proto=protocol,
            flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
        )
        for kind, _, protocol, _, place in infos
    ]
