"""Pages opened in a browser, and watched for what they should not do."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@contextmanager
def chromium(profile: Path) -> Iterator[BrowserContext]:
    """Headless Chromium with a profile of its own; without one on PATH the test is skipped."""
    path = next(filter(None, map(shutil.which, _NAMES)), None)
    if path is None:
        pytest.skip("no Chromium on PATH: apt-get install chromium")
    with sync_playwright() as playwright:
        context = playwright.chromium.launch_persistent_context(
            str(profile), executable_path=path, headless=True, args=list(_ARGUMENTS), timeout=180_000
        )
        context.set_default_timeout(180_000)
        yield context
        context.close()


@contextmanager
def watched(
    browser: BrowserContext,
    path: Path,
    ready: str,
    width: int = 1280,
    scheme: str = "light",
    site: Path | None = None,
    fragment: str = "",
) -> Iterator[Page]:
    """The page of a file, once what the selector `ready` names is drawn; at the end nothing may have gone wrong.

    It may load nothing but what lies inside it, or below `site`, and print nothing but logs.
    """
    page, wrong = browser.new_page(), []
    allowed = ("data:", "blob:", (site or path).as_uri())
    page.set_viewport_size({"width": width, "height": 850})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.on("console", lambda message: wrong.append(message.text) if message.type != "log" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if not request.url.startswith(allowed) else None)
    page.goto(path.as_uri() + fragment)
    page.wait_for_selector(ready)
    yield page
    page.close()
    assert wrong == []
