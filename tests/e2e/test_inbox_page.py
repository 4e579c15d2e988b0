"""The inbox page in a browser: what arrives appears and is found, and nothing that came from outside does anything."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from typing import Any, cast

import aiohttp
import asyncpg
import pytest
import pytest_asyncio
from aiohttp import web
from pydantic import SecretStr
from selenium.webdriver import ActionChains, Chrome

from sandbox import viewer
from sandbox.__main__ import start
from sandbox.postgres import Postgres
from sandbox.settings import Settings
from sandbox.store import Store
from tests.programs import require_program
from tests.waiting import eventually, settled
from tools.browser import CHROMEDRIVER, CHROMIUM, browser
from tools.inbox_picture import Doors

pytestmark = pytest.mark.asyncio(loop_scope="module")

SOLE = "<h1>The mail</h1><p style='color: rgb(1, 2, 3)'>as it was <a href='https://example.com/order'>meant</a></p>"

# What anybody can write into anything.
MARKUP = """<script>top.ran = 1</script>"><img src=x onerror="top.ran = 1"><a href="javascript:top.ran = 1">x</a>"""
# What a mail can try besides; TRAP is somewhere else.
HOSTILE = (
    MARKUP
    + """
<script src="TRAP/script"></script><svg onload="top.ran = 1"></svg><body onload="top.ran = 1">
<link rel="preconnect" href="TRAP"><link rel="stylesheet" href="TRAP/style"><link rel="prefetch" href="TRAP/prefetch">
<meta http-equiv="refresh" content="0;url=TRAP/refresh"><base href="TRAP/base/">
<img src="TRAP/image" srcset="TRAP/set 2x">
<style>@import url(TRAP/import); p { background: url(TRAP/background) }</style><p>Hello</p><video poster="TRAP/poster">
</video><iframe src="TRAP/frame"></iframe><iframe srcdoc="<script>top.ran = 1</script>"></iframe>
<object data="TRAP/object"></object>
<form action="TRAP/form"><button autofocus onfocus="top.ran = 1">Send</button></form>
<a id="away" href="TRAP/away">away</a>"""
)


class Page:
    """The browser, driven from a thread, for the servers run in the loop here."""

    def __init__(self, driver: Chrome, doors: Doors) -> None:
        self.driver = driver
        self.doors = doors

    async def open(self, path: str = "/inbox") -> None:
        await asyncio.to_thread(self.driver.get, self.doors.url + path)
        await self.until("document.getElementById('state').dataset.state === 'live'")

    async def run(self, script: str, *args: object) -> Any:
        return await asyncio.to_thread(self.driver.execute_script, script, *args)

    async def until(self, condition: str) -> Any:
        return await eventually(lambda: self.run(f"return {condition}"))

    async def lines(self) -> list[str]:
        found: list[str] = await self.run(
            "return [...document.querySelectorAll('#arrivals li')].map(li => li.innerText)"
        )
        return found

    async def shows(self, *texts: str) -> list[str]:
        """Its lines, once each has its text and there are no others."""

        async def look() -> list[str]:
            lines = await self.lines()
            fits = len(lines) == len(texts) and all(text in line for text, line in zip(texts, lines, strict=True))
            return lines if fits else []

        return await eventually(look)

    async def press(self, keys: str) -> None:
        """Wherever the focus is."""
        await asyncio.to_thread(ActionChains(self.driver).send_keys(keys).perform)

    async def search(self, text: str) -> None:
        await self.run("const field = document.getElementById('containing'); field.focus(); field.select()")
        await self.press(text)

    async def click(self, selector: str) -> None:
        await self.run("document.querySelector(arguments[0]).click()", selector)

    async def read(self, text: str) -> str:
        """Opens the line that has this text. Answers all that is shown then."""
        await self.until("document.querySelectorAll('#arrivals a').length")
        await self.run(
            "document.getElementById('opened').replaceChildren();"
            "[...document.querySelectorAll('#arrivals a')].find(a => a.innerText.includes(arguments[0])).click()",
            text,
        )
        await self.until("document.querySelector('#opened h2')")
        await self.run("document.querySelectorAll('#opened details').forEach(details => { details.open = true })")
        return str(await self.run("return document.getElementById('opened').innerText"))

    async def in_frame(self, script: str) -> Any:
        def look() -> Any:
            self.driver.switch_to.frame(self.driver.find_element("css selector", "#opened iframe"))
            try:
                return self.driver.execute_script(f"return document.readyState === 'complete' && ({script})")
            finally:
                self.driver.switch_to.default_content()

        return await eventually(lambda: asyncio.to_thread(look))


@pytest.fixture(scope="module")
def driver() -> Iterator[Chrome]:
    require_program("chromium", CHROMIUM)
    require_program("chromium-driver", CHROMEDRIVER)
    with browser() as driver:
        yield driver


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(driver: Chrome, postgres: Postgres) -> AsyncIterator[Page]:
    owner = await asyncpg.connect(postgres.url)
    await owner.execute("CREATE DATABASE inbox")
    async with AsyncExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setattr(viewer, "TICK", 600.0)  # so that arrivals are told
        settings = Settings(database_url=SecretStr(postgres.url_of("inbox")), smtp_port=0, http_port=0)
        mailbox, http = await start(settings, stack)
        store = await stack.enter_async_context(Store(postgres.url_of("inbox")))
        yield Page(driver, Doors(store, mailbox.port, f"http://127.0.0.1:{http.port}"))
        await asyncio.to_thread(driver.get, "about:blank")
    await owner.execute("DROP DATABASE inbox WITH (FORCE)")
    await owner.close()


async def headers(url: str) -> dict[str, str]:
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return dict(response.headers)


async def test_what_arrives_appears_by_itself_and_is_found(page: Page) -> None:
    await page.open()
    assert "notifyqueue send" in await page.run("return document.body.innerText")
    await page.run("window.same = true")

    key = await page.doors.mail("anna@example.org", "Your order 17", "It left this morning.")
    await page.shows("Your order 17")
    await page.doors.sms("+447700900017", "Your code is 4711.")
    await page.doors.push("phone-1", "Your parcel", "It waits.", times=2)
    await page.doors.webhook("notification.sent", {"notification_id": key}, times=2)
    lines = await page.shows("notification.sent", "Your parcel", "Your code", "Your order 17")
    assert "verified" in lines[0]
    await page.until("[...document.querySelectorAll('.note')].length === 2")
    assert all("delivered 2 times" in line for line in (await page.lines())[:2])

    for kind, text in (("mail", "order 17"), ("sms", "4711"), ("push", "parcel"), ("webhook", "notification.sent")):
        await page.click(f"[data-kind={kind}]")
        await page.shows(text)
    await page.click("[data-kind='']")
    await page.shows("", "", "", "")

    await page.press("/")
    await page.press(key.upper())
    await page.shows("notification.sent", "Your order 17")
    assert await page.run("return window.same")
    await page.open(f"/inbox?q={key}")
    await page.shows("notification.sent", "Your order 17")
    for text, found in (("LEFT THIS", "order 17"), ("anna@", "order 17"), ("4711", "4711"), ("wAITS", "parcel")):
        await page.search(text)
        await page.shows(found)
    await page.search("100%_")
    await page.until("!document.getElementById('unmatched').hidden")
    assert "Nothing matches" in await page.run("return document.body.innerText")
    await page.click("#clear")
    await page.shows("", "", "", "")
    await page.click("[data-kind=refused]")
    await page.until("!document.getElementById('unmatched').hidden")
    await page.doors.mail("451x1+anna@example.org", "Your order 18", "It left this evening.")
    await page.shows("451x1+anna@example.org")
    await page.click("[data-kind=mail]")
    await page.shows("order 18", "order 17")
    await page.click("[data-kind='']")
    await page.shows("order 18", "", "", "", "")

    await page.open("/inbox?kind=constructor")
    await page.shows("order 18", "", "", "", "")
    assert await page.run("return location.search") == ""

    await page.run("document.activeElement.blur()")
    await page.press("jj")
    await page.until("document.querySelector('#opened h2')?.innerText === 'notification.sent'")

    await page.open("/inbox?kind=push&q=phone")
    for number in range(55):
        await page.doors.push(f"phone-{number}", "Older", "")
    await page.doors.sms("+447700900018", "Others are not shown here.")
    await page.shows(*["Older"] * 50)
    await page.click("#older")
    await page.shows(*["Older"] * 55, "Your parcel")
    assert await page.run("return document.getElementById('older').hidden")


async def test_a_slow_answer_is_shown_whatever_arrives_meanwhile(page: Page) -> None:
    await page.open()
    await page.run(
        "window.held = []; window.now = fetch; window.fetch = (...asked) =>"
        "  now(...asked).then(answer => new Promise(show => held.push(() => show(answer))));"
        "source.addEventListener('message', () => { window.told = true })"
    )
    await page.doors.sms("+447700900019", "Slowly, first")
    await page.until("held.length === 1")
    await page.run("choose({ containing: 'slowly' })")
    await page.until("held.length === 2")
    await page.run("window.told = false")
    await page.doors.sms("+447700900019", "Slowly, second")
    await page.until("window.told")
    await page.run("held[1]()")
    await page.shows("first")
    await page.run("window.fetch = now; held.forEach(show => show())")
    await page.until("held.length === 3 && held[2]() === undefined")
    await page.shows("second", "first")


async def test_a_mail_is_shown_in_a_frame_that_can_do_nothing(page: Page) -> None:
    key = await page.doors.mail("451x1+ben@example.org", "Framed", "In words.", SOLE, Reply_To="help@example.com")
    await page.doors.mail("ben@example.org", "After it", "")
    await page.open("/inbox?q=framed")
    shown = await page.read("Framed")
    assert key in shown
    assert all(text in shown for text in ("help@example.com", "In words.", "https://example.com/order"))
    assert " 451" in shown
    assert " accept" in shown

    assert await page.in_frame("document.querySelector('h1').innerText") == "The mail"
    assert await page.in_frame("getComputedStyle(document.querySelector('p')).color") == "rgb(1, 2, 3)"
    frame = await page.run(
        "const frame = document.querySelector('#opened iframe'); return [frame.getAttribute('sandbox'), frame.src]"
    )
    assert frame[0] == ""
    for url in (frame[1], frame[1].replace("/html", "/source")):
        policy = (await headers(url))["Content-Security-Policy"].split("; ")
        assert {"default-src 'none'", "img-src data:", "form-action 'none'", "sandbox"} <= set(policy)
    answered = await headers(f"{page.doors.url}/inbox")
    policy = answered["Content-Security-Policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "frame-src 'self'", "frame-ancestors 'none'"} <= set(policy)
    assert "unsafe" not in answered["Content-Security-Policy"]
    assert answered["X-Content-Type-Options"] == "nosniff"


async def test_a_webhook_says_whether_it_was_signed_and_how_it_was_answered(page: Page) -> None:
    await page.doors.webhook("notification.failed", {"status": "FAILED", "reference": "r-1"}, "500x1+shop", times=2)
    await page.doors.webhook("notification.expired", {"status": "EXPIRED"}, "unsigned")
    await page.open("/inbox?kind=webhook")
    shown = await page.read("notification.failed")
    assert all(text in shown for text in ("500x1+shop", "500, 204", '"reference": "r-1"'))
    assert "not verified" in next(line for line in await page.lines() if "notification.expired" in line)
    assert "no: not all were signed" in await page.read("notification.expired")


async def test_nothing_that_was_planted_runs_or_reaches_anything_else(page: Page) -> None:
    reached: list[asyncio.BaseTransport] = []

    class Trap(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            reached.append(transport)
            cast(asyncio.Transport, transport).abort()

    async def bare(_: web.Request) -> web.Response:
        return web.Response(text=hostile, content_type="text/html")

    app = web.Application()
    app.router.add_get("/", bare)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    elsewhere = await asyncio.get_running_loop().create_server(Trap, "127.0.0.1", 0)
    hostile = HOSTILE.replace("TRAP", f"http://127.0.0.1:{elsewhere.sockets[0].getsockname()[1]}")

    await page.doors.push(f"planted {MARKUP}", MARKUP, MARKUP)
    await page.doors.sms("+447700900666", f"planted {MARKUP}")
    event = {"notification_id": MARKUP, "channel": MARKUP, "labels": {MARKUP: MARKUP, "planted": ""}}
    await page.doors.webhook(MARKUP, event, "planted%3Cimg src=x onerror=top.ran=1%3E")
    await page.doors.mail("eve@example.org", f"planted {MARKUP}", MARKUP, hostile, Reply_To=f'"{MARKUP[:25]}" <a@b.c>')
    await page.open("/inbox?q=planted")
    assert len(await page.shows("", "", "", "")) == 4
    for kind in ("PUSH", "SMS", "WEBHOOK", "MAIL"):
        assert "<script>top.ran = 1</script>" in await page.read(kind)
    assert await page.in_frame("document.body.innerText.includes('Hello')")
    await page.in_frame("[...document.querySelectorAll('a, button, img, p')].forEach(each => each.click()) || true")
    assert await page.run("return typeof window.ran") == "undefined"
    assert await page.run("return document.querySelectorAll('main script, main img, main iframe').length") == 1
    assert reached == []

    # As it would have been: the trap works.
    address = runner.addresses[0]
    await asyncio.to_thread(page.driver.get, f"http://{address[0]}:{address[1]}/")
    await eventually(lambda: bool(reached))
    await asyncio.to_thread(page.driver.get, "about:blank")
    elsewhere.close()
    await runner.cleanup()
    await settled()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_it_fits_a_telephone(page: Page, scheme: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    metrics = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    await page.doors.mail("long-" * 12 + "@example.org", "Subject" * 40, json.dumps(["word" * 200]))
    try:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        await page.open("/inbox?q=subjectsubject")
        assert await page.run("return document.documentElement.scrollWidth") <= 400
        await page.read("Subject")
        assert await page.run("return document.documentElement.scrollWidth") <= 400
        assert await page.run("return getComputedStyle(document.getElementById('list')).display") == "none"
        ground = await page.run("return getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, ground[4:-1].split(","))) > 384) == (scheme == "light")
        await page.click(".back a")
        await page.until("getComputedStyle(document.getElementById('list')).display !== 'none'")
    finally:
        page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
