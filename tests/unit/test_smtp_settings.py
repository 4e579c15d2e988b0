"""Which settings of the mail provider cannot work, and that they say so without a value."""

from typing import Any

import pytest

from services.worker.providers.smtp import SmtpSettings, Tls


def _settings(**changes: Any) -> SmtpSettings:
    return SmtpSettings(**{"host": "mail.example.com", "sender": "Notify <notify@example.com>"} | changes)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"username": "user", "password": "secret"},
        {"tls": Tls.NONE},
        {"tls": Tls.NONE, "host": "127.0.0.1", "username": "user", "password": "secret"},
        {"tls": Tls.NONE, "host": "localhost", "username": "user", "password": "secret"},
        {"idle_timeout": 0},
    ],
)
def test_fine(changes: dict[str, Any]) -> None:
    assert "secret" not in repr(_settings(**changes))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"host": ""}, "host"),
        ({"sender": "nobody"}, "sender"),
        ({"username": "user"}, "username, password"),
        ({"password": "secret"}, "username, password"),
        ({"tls": Tls.NONE, "username": "user", "password": "secret"}, "tls"),
        ({"tls": Tls.NONE, "host": "192.0.2.1", "username": "user", "password": "secret"}, "tls"),
        ({"answer_timeout": 0}, "timeouts"),
        ({"max_connections": 0}, "max_connections"),
        ({"idle_timeout": -1}, "idle_timeout"),
    ],
)
def test_wrong(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named) as caught:
        _settings(**changes)
    assert not {"nobody", "secret", "192.0.2.1"} & set(str(caught.value).split())
