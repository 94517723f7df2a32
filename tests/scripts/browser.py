"""Pages opened in a browser, and watched for what they should not do."""

import dataclasses
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, sync_playwright

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
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


@dataclasses.dataclass
class Seen:
    """Messages on the console, and what was asked for."""

    errors: list[str] = dataclasses.field(default_factory=list)
    requests: list[str] = dataclasses.field(default_factory=list)

    def wrong(self, url: str) -> list[str]:
        """Errors, and requests for anything but what lies inside the page, or below the URL."""
        inside = ("data:", "blob:", url.partition("#")[0])
        return self.errors + [request for request in self.requests if not request.startswith(inside)]


@contextmanager
def watched(
    browser: BrowserContext,
    path: Path,
    *,
    width: int = 1280,
    height: int = 900,
    scheme: str = "light",
    ready: str = "#curves-plot .main-svg",
    site: Path | None = None,
    fragment: str = "",
) -> Iterator[tuple[Page, Seen]]:
    """The page of a file, once it is drawn; at the end nothing may have gone wrong.

    Args:
      browser: what opens it.
      path: of the file.
      width: of the window, in pixels.
      height: of the window, in pixels.
      scheme: "light" or "dark".
      ready: selector of what is there once the page is drawn.
      site: the directory that the page may load files from; None: it may load nothing.
      fragment: what comes after the path in the address.
    """
    page, seen = browser.new_page(), Seen()
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.on("console", lambda message: seen.errors.append(message.text) if message.type != "log" else None)
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.goto(path.as_uri() + fragment)
    page.wait_for_selector(ready)
    yield page, seen
    page.close()
    assert seen.wrong((site or path).as_uri()) == []
