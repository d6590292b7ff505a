"""The report as a browser shows it: nothing fetched, nothing on the console, everything drawn."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from streamgauge.reporting import Report, render

pytestmark = [pytest.mark.slow, pytest.mark.browser]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


class Visit:
    """A page opened from a file without a network, with all it said and asked for."""

    def __init__(self, browser: Browser, file: Path, width: int = 1280, **context: Any) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 800}, offline=True, **context)
        self.page: Page = self.context.new_page()
        self.said: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(file.as_uri())

    def scroll(self) -> None:
        """Bring every drawing into view and wait until all are drawn."""
        self.page.evaluate("document.querySelectorAll('[data-figure]').forEach(c => c.scrollIntoView())")
        for chart in self.page.query_selector_all("[data-figure]"):
            chart.scroll_into_view_if_needed()
        expect(self.page.locator("[data-figure]:not([data-drawn])")).to_have_count(0)
        assert self.page.evaluate("[...document.querySelectorAll('[data-figure]')].every(c => c.querySelector('svg'))")


@pytest.fixture
def visit(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Visit]]:
    opened: list[Visit] = []

    def open_page(report: Report, **options: Any) -> Visit:
        file = tmp_path / f"report-{len(opened)}.html"
        file.write_text(render(report), encoding="utf-8")
        opened.append(Visit(browser, file, **options))
        return opened[-1]

    yield open_page
    for seen in opened:
        seen.context.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (380, "light")])
def test_everything_is_drawn_in_silence(visit: Callable[..., Visit], canned: Report, width: int, scheme: str) -> None:
    seen = visit(canned, width=width, color_scheme=scheme)
    seen.scroll()
    assert seen.said == []
    assert [url for url in seen.asked if not url.startswith("data:")] == [seen.page.url]
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_verdict_is_the_largest_text(visit: Callable[..., Visit], canned: Report) -> None:
    for width in (380, 1280):
        page = visit(canned, width=width).page
        sizes = page.evaluate(
            "[...document.querySelectorAll('body *')].filter(e => !e.closest('svg'))"
            ".map(e => [parseFloat(getComputedStyle(e).fontSize), e.closest('.answer') !== null])"
        )
        assert max(size for size, verdict in sizes if verdict) > max(size for size, verdict in sizes if not verdict)


def test_hostile_names_run_nothing(visit: Callable[..., Visit], canned: Report) -> None:
    spec = importlib.util.spec_from_file_location("hostile", Path(__file__).with_name("test_page.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    seen = visit(module.hostile(canned))
    seen.scroll()
    assert seen.page.evaluate("window.pwned") is None
    assert seen.said == []
    assert module.HOSTILE.split("{{")[0] in seen.page.inner_text("h1")


def test_a_heat_map_tells_its_value(visit: Callable[..., Visit], alone: Callable[..., Report]) -> None:
    arm = alone().arms[0]
    steps, layers = len(arm.readings["grad_rms"].steps), len(arm.readings["grad_rms"].places)
    values = np.full((steps, layers), 2.5e-7)
    values[: steps // 2, layers // 2 :] = math.inf
    table = replace(arm.readings["grad_rms"], values=values)
    seen = visit(alone(readings={"grad_rms": table}))
    seen.scroll()
    box = seen.page.locator(".layer-by-step .chart .nsewdrag").bounding_box()
    assert box is not None
    for x, y, told in ((0.9, 0.2, "2.50e-7"), (0.1, 0.2, "not finite"), (0.1, 0.9, "0:blocks.0.attention")):
        seen.page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"], steps=3)
        expect(seen.page.locator("#tip")).to_contain_text(told)
    assert seen.said == []


def test_the_loss_switches_to_a_log_axis_and_back(visit: Callable[..., Visit], canned: Report) -> None:
    seen = visit(canned)
    seen.scroll()
    kind = "document.getElementById('figure-0').layout.yaxis.type"
    for expected in ("log", "linear"):
        seen.page.locator("[data-log='0']").click()
        assert seen.page.evaluate(kind) == expected
    assert seen.said == []


def test_the_page_reads_without_javascript(visit: Callable[..., Visit], canned: Report) -> None:
    seen = visit(canned, java_script_enabled=False)
    text = seen.page.inner_text("body")
    for part in ("will not train", "missing-residual", "The drawings need JavaScript", "streamgauge compare"):
        assert part in text
    assert seen.page.locator(".chart:visible").count() == 0


def test_hard_values_are_drawn(visit: Callable[..., Visit], canned: Report) -> None:
    for value in (math.nan, math.inf, 0.0):
        arms = tuple(
            replace(a, readings={n: replace(r, values=np.full_like(r.values, value)) for n, r in a.readings.items()})
            for a in canned.arms[:1]
        )
        seen = visit(replace(canned, arms=arms))
        seen.scroll()
        assert seen.said == []


def test_printing_draws_every_figure(visit: Callable[..., Visit], canned: Report) -> None:
    seen = visit(canned, color_scheme="dark")
    assert seen.page.pdf()[:4] == b"%PDF"
    drawn = seen.page.evaluate("[...document.querySelectorAll('[data-figure]')].filter(c => c.dataset.drawn).length")
    assert drawn == seen.page.locator("[data-figure]").count()
