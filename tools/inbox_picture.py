"""Makes docs/inbox.png: the inbox page with a morning of the demo's shop.

`python -m tools.inbox_picture` needs Debian's chromium and chromium-driver.
"""

import asyncio
import base64
import json
import secrets
import sys
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime
from email.message import EmailMessage
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import uuid4

if __name__ == "__main__":
    from shared import starting

    starting.spare_children()

import aiohttp
import aiosmtplib
from pydantic import SecretStr
from selenium.webdriver import Chrome
from standardwebhooks import Webhook

from sandbox import twilio
from sandbox.__main__ import start
from sandbox.postgres import Postgres
from sandbox.settings import Settings
from sandbox.store import Store
from tools.browser import browser

TRIES = 5
PICTURE = Path(__file__).resolve().parent.parent / "docs" / "inbox.png"

ORDER = """
<h1 style="color:#2457c5">On its way</h1>
<p>Dear Anna, order <b>1017</b> left our house this morning.</p>
<table cellpadding="6" style="border-collapse:collapse">
<tr bgcolor="#eef2f9"><td>1 &times; Teapot, blue</td><td align="right">39.00 &euro;</td></tr>
<tr><td>2 &times; Cup, blue</td><td align="right">18.00 &euro;</td></tr>
</table>
<p><a href="https://example.com/orders/1017">Where is it?</a></p>
"""


class Doors:
    """How things come into a sandbox: by its servers, as a worker and a dispatcher knock there."""

    def __init__(self, store: Store, smtp_port: int, url: str) -> None:
        self.url = url
        self._store = store
        self._smtp_port = smtp_port
        self._secret = "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()

    async def mail(self, address: str, subject: str, text: str, html: str = "", **headers: str) -> str:
        """Answers the delivery key. Tries again where the address says that it shall be refused at first."""
        key, mail = str(uuid4()), EmailMessage()
        mail["Message-ID"] = f"<{key}@example.com>"
        mail["From"] = "The Shop <shop@example.com>"
        mail["To"] = address
        mail["Subject"] = subject
        for name, value in headers.items():
            mail[name.replace("_", "-")] = value
        mail.set_content(text)
        if html:
            mail.add_alternative(html, subtype="html")
        for _ in range(TRIES):
            with suppress(aiosmtplib.SMTPRecipientsRefused):
                await aiosmtplib.send(mail, hostname="127.0.0.1", port=self._smtp_port)
                break
        return key

    async def sms(self, number: str, text: str) -> None:
        url = f"{self.url}/twilio/2010-04-01/Accounts/{twilio.ACCOUNT_SID}/Messages.json"
        form = {"From": "+15005550006", "To": number, "Body": text}
        login = aiohttp.encode_basic_auth(twilio.ACCOUNT_SID, twilio.AUTH_TOKEN)
        await self._post(url, data=form, headers={"Authorization": login})

    async def push(self, token: str, title: str, body: str, times: int = 1) -> None:
        """By the store: who knocks at FCM has a token of Google's to show."""
        key, content = str(uuid4()), {"title": title, "body": body, "data": {"screen": "parcel"}}
        for _ in range(times):
            await self._store.add_message("fcm", token, content, taken_as=f"projects/p/{key}", replaces=key)

    async def webhook(self, type_: str, data: dict[str, Any], name: str = "up", times: int = 1) -> None:
        """Signed, but for the name `unsigned`."""
        await self._store.put_webhook_secret(name, self._secret)
        now, id_ = datetime.now(UTC), str(uuid4())
        body = json.dumps({"type": type_, "timestamp": now.isoformat(), "data": data})
        headers = {"webhook-id": id_, "webhook-timestamp": str(int(now.timestamp())), "webhook-signature": "v1,none"}
        if name != "unsigned":
            headers["webhook-signature"] = Webhook(self._secret).sign(id_, now, body)
        for _ in range(times):
            await self._post(f"{self.url}/webhooks/{name}", data=body.encode(), headers=headers)

    async def _post(self, url: str, **request: Any) -> None:
        async with aiohttp.ClientSession() as session, session.post(url, **request) as response:
            await response.read()


async def fill(doors: Doors) -> None:
    """A morning. The one to be opened comes last but a few."""
    await doors.mail("reader@example.com", "This week", "New things.", List_Unsubscribe="<https://example.com/u>")
    await doors.webhook("notification.failed", {"status": "FAILED", "channel": "EMAIL"}, "unsigned")
    for number in (14, 15, 16):
        data: dict[str, Any] = {"notification_id": str(uuid4()), "status": "SENT", "channel": "SMS"}
        await doors.sms(f"+447700900{number:03}", f"Your code is {number * 7919}. It is good for ten minutes.")
        await doors.webhook("notification.sent", data, times=1 + (number == 15))
    await doors.push("phone-1", "Your parcel is here", "It waits at the door.", times=2)
    await doors.push("tablet-7", "Ihr Paket ist da", "Es wartet vor der T\N{LATIN SMALL LETTER U WITH DIAERESIS}r.")
    await doors.mail("451x2+ben@example.org", "Your order 1016 is on its way", "Order 1016 left our house.")
    key = await doors.mail("anna@example.org", "Your order 1017 is on its way", "Order 1017 left our house.", ORDER)
    await doors.webhook("notification.sent", {"notification_id": key, "status": "SENT", "channel": "EMAIL"})


def look(driver: Chrome, url: str) -> None:
    driver.get(f"{url}/inbox")
    driver.implicitly_wait(10)
    driver.find_element("xpath", "//a[contains(., '1017')][contains(., 'Mail')]").click()
    frame = driver.find_element("css selector", "#opened iframe")
    driver.switch_to.frame(frame)
    driver.find_element("tag name", "h1")
    driver.switch_to.default_content()


async def take(owner_url: str) -> None:
    settings = Settings(database_url=SecretStr(owner_url), smtp_port=0, http_port=0)
    async with AsyncExitStack() as stack:
        mailbox, http = await start(settings, stack)
        store = await stack.enter_async_context(Store(owner_url))
        doors = Doors(store, mailbox.port, f"http://127.0.0.1:{http.port}")
        await fill(doors)
        driver = stack.enter_context(browser(1180, 860))
        await asyncio.to_thread(look, driver, doors.url)
        await asyncio.to_thread(driver.save_screenshot, str(PICTURE))


def main() -> int:
    with TemporaryDirectory(prefix="notifyqueue-picture-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # the server has an account of its own where this one is root
        with Postgres(folder / "data") as server:
            asyncio.run(take(server.url))
    print(f"{PICTURE.name}: {PICTURE.stat().st_size // 1024} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
