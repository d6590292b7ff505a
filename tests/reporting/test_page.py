from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from streamgauge.reporting import Report, render
from streamgauge.reporting.page import compare, layer_signals
from streamgauge.vocabulary import Finding, Join, NotAssessed, Quantity, Verdict, Wiring

HOSTILE = '</script><script>window.pwned=1</script><img src=x onerror="window.pwned=1">{{7*7}}%{x}<!--\u2028\''


class Page(HTMLParser):
    """The parts of a page that tests look at."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.text: list[str] = []
        self._inside = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else ""
        if tag == "script":
            self.scripts.append((dict(attrs), ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            attrs, text = self.scripts[-1]
            self.scripts[-1] = (attrs, text + data)
        elif not self._inside:
            self.text.append(data)

    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def hostile(report: Report) -> Report:
    finding = Finding(HOSTILE, HOSTILE, "error", HOSTILE, HOSTILE, {HOSTILE: Quantity(HOSTILE, HOSTILE)}, HOSTILE,
                      HOSTILE, HOSTILE)  # fmt: skip
    arm = replace(
        report.arms[0],
        name=HOSTILE,
        verdict=Verdict("at risk", HOSTILE),
        outcome=HOSTILE,
        findings=(replace(finding, consequences=(finding,)),),
        not_assessed=(NotAssessed(HOSTILE, HOSTILE, HOSTILE),),
        wiring=Wiring(joins=(Join(0, HOSTILE, "pre"),), unplaced=(HOSTILE,), notes=(HOSTILE,)),
        config={HOSTILE: HOSTILE},
        facts={HOSTILE: HOSTILE},
    )
    data = replace(report.data, description=HOSTILE, hash=HOSTILE, facts={HOSTILE: HOSTILE})
    return Report(HOSTILE, (arm,), HOSTILE, {HOSTILE: HOSTILE}, data, HOSTILE)


@pytest.fixture(scope="module")
def page(canned: Report) -> Page:
    return Page(render(canned))


def test_the_page_says_verdict_reason_remedy_and_numbers(page: Page) -> None:
    words = page.words()
    for part in (
        "first light: 24 layers, four ways",
        "will not train no gradient reaches the first layers",
        "Change Add the skip: x = x + f(norm(x))",
        "largest learning rate 0.006 (0.004 to 0.009)",
        "missing-residual W101",
        "Explains 2 more: token-collapse, unigram-plateau",
        "eps-underflow: the run is in float32",
        "streamgauge compare --schemes none,post,pre,b2t",
        "torch 2.13.0",
        "9f2c9f2c",
        "data_seed",
    ):
        assert part in words


def test_the_page_loads_nothing(page: Page) -> None:
    loading = [
        (tag, name, value)
        for tag, attributes in page.tags
        for name, value in attributes.items()
        if name in ("src", "srcset", "data", "poster", "action") or (name == "href" and tag == "link")
    ]
    assert loading == [("link", "href", "data:,")]
    style = re.findall(r"<style>(.*?)</style>", render(Report("t")), re.DOTALL)[0]
    assert "url(" not in style
    assert "@import" not in style


def test_the_policy_names_exactly_the_scripts_of_the_page(page: Page) -> None:
    policy = next(a["content"] for tag, a in page.tags if tag == "meta" and a.get("http-equiv"))
    ran = [text for attributes, text in page.scripts if attributes.get("type") != "application/json"]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in ran]
    assert policy is not None
    assert re.findall(r"'sha256-([^']+)'", policy) == hashes
    assert "default-src 'none'" in policy


def test_every_drawing_has_its_data_and_its_words(page: Page) -> None:
    figures = json.loads(next(text for a, text in page.scripts if a.get("id") == "figures"))
    charts = [a for _, a in page.tags if "data-figure" in a]
    assert [chart["data-figure"] for chart in charts] == [str(i) for i in range(len(figures))]
    assert all(chart["aria-label"] for chart in charts)


def test_hostile_text_stays_text(canned: Report) -> None:
    text = render(hostile(canned))
    page = Page(text)
    assert [a.get("type") for a, _ in page.scripts] == ["application/json", None, None]
    assert not [tag for tag, attributes in page.tags if tag == "img" or "onerror" in attributes]
    json.loads(page.scripts[0][1])
    assert page.words().count("window.pwned=1") >= 2 * 15
    assert "{{7*7}}" in page.words()


def test_a_source_on_arxiv_becomes_a_link(page: Page) -> None:
    links = [a.get("href") for tag, a in page.tags if tag == "a"]
    assert "https://arxiv.org/abs/1512.03385" in links


def test_backticks_set_code_and_stay_escaped(alone: Callable[..., Report]) -> None:
    text = render(alone(verdict=Verdict("trains", "use `x < y` here")))
    assert "use <code>x &lt; y</code> here" in text


def test_facts_shown_elsewhere_are_not_repeated(alone: Callable[..., Report]) -> None:
    facts = {"corpus_hash": "9f2c" * 16, "lr": 3e-3, "parameters": 7654321}
    words = Page(render(alone(facts=facts, wiring=None))).words()
    assert "7,654,321" in words
    assert "corpus_hash" not in words


def test_empty_reports_are_pages_without_plotly(alone: Callable[..., Report]) -> None:
    for report in (Report("empty"), alone(readings={}, findings=(), wiring=None, not_assessed=())):
        text = render(report)
        assert len(text) < 60_000
        assert "plotly" not in text.lower().replace("plotly.react", "").split("<script>")[0]
    assert "no findings" in Page(text).words()
    assert "This report holds no arms." in render(Report("empty"))


def test_settings_are_split_into_what_differs_and_what_does_not() -> None:
    found = compare([{"scheme": "pre", "lr": 0.1, "seed": 0}, {"scheme": "post", "lr": 0.1}])
    assert found.differing == (("scheme", ("pre", "post")), ("seed", ("0", "–")))
    assert found.common == (("lr", "0.1"),)


def test_signals_come_in_their_own_order_then_unknown_ones(canned: Report) -> None:
    assert layer_signals(canned) == [
        "stream_rms",
        "branch_ratio",
        "cosine_excess",
        "token_cosine",
        "grad_rms",
        "retention",
    ]
    arm = canned.arms[0]
    extra = replace(arm, readings={"zeta": replace(arm.readings["grad_rms"], signal="zeta"), **arm.readings})
    assert layer_signals(replace(canned, arms=(extra,)))[-1] == "zeta"


@pytest.mark.slow
def test_a_hundred_layers_by_ten_thousand_steps_stay_under_ten_megabytes(make: Callable[..., Report]) -> None:
    report = make(layers=100, steps=10_000, every=1)
    assert report.arms[0].readings["grad_rms"].values.shape == (10_000, 200)
    assert np.isfinite(report.arms[0].readings["grad_rms"].values).all()
    assert len(render(report).encode()) < 10_000_000
