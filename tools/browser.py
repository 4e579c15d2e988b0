"""A browser without a window: Debian's Chromium, by WebDriver."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from selenium.webdriver import Chrome, ChromeOptions, ChromeService

CHROMIUM = Path("/usr/bin/chromium")
CHROMEDRIVER = Path("/usr/bin/chromedriver")

# Of the last ones each is something that a browser would otherwise do for itself, and not for a page.
FLAGS = (
    "--headless",
    "--no-sandbox",  # root has none; what is opened is our own
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--no-first-run",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def browser(width: int = 1280, height: int = 800) -> Iterator[Chrome]:
    """With a profile of its own, which goes with it."""
    with TemporaryDirectory(prefix="notifyqueue-browser-", ignore_cleanup_errors=True) as profile:
        options = ChromeOptions()
        options.binary_location = str(CHROMIUM)
        for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
            options.add_argument(flag)
        # Named, so that nothing is looked for, or fetched.
        driver = Chrome(options, ChromeService(str(CHROMEDRIVER)))
        try:
            yield driver
        finally:
            driver.quit()
