"""What holds for a connection to any provider, whoever makes it."""

import ipaddress
from urllib.parse import urlsplit

CONNECT_TIMEOUT = 5.0


def check_url(url: str) -> None:
    """Raises ValueError where credentials would be told to whoever listens on the way."""
    parts = urlsplit(url)
    if parts.scheme != "https" and not is_near(parts.hostname or ""):
        raise ValueError("url: credentials do not leave this machine without TLS")


def is_near(host: str) -> bool:
    """Whether it is this machine."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
