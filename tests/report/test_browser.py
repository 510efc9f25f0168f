"""The pages in a real browser: opened from disk, clicked, printed, in the dark and on a phone."""

import base64

import pytest

from gcig.auditing import AuditResult
from gcig.records import AuditRecord
from gcig.report.answers import Setting
from gcig.report.audit_page import audit_page
from gcig.report.comparison_page import comparison_page
from gcig.report.training_page import training_page
from support.audit_records import hostile, record, subject
from support.browsers import needs_browser, open_browser
from support.fold_results import comparison, evaluation

pytestmark = needs_browser


def named(names):
    """Return an audit of groups with these names."""
    return AuditRecord(subject(), evaluation(sizes=(50,) * len(names), names=names))


PAGES = {
    "audit": lambda: audit_page(
        record(),
        [record(0.8, 0.3)],
        check=AuditResult(record()).check(max_reason_gap=0.05, max_eo_gap=0.1),
    ),
    "many-groups": lambda: audit_page(named(tuple(f"group number {i}" for i in range(12)))),
    "long-names": lambda: audit_page(
        named(tuple(f"employment=self-employed-{i} & nationality=other" for i in range(6)))
    ),
    "hostile": lambda: audit_page(hostile(), [hostile()]),
    "comparison": lambda: comparison_page(comparison()),
    "training": lambda: training_page(
        {"unconstrained": ("Plain", evaluation()), "fairx": ("FairX", evaluation(0.89, 0.05, 0.1))},
        Setting("binary", ("no", "yes"), ("yes",), ("sex",), ("f", "m")),
        title="t",
    ),
}


@pytest.fixture(scope="module")
def browser():
    with open_browser() as driver:
        yield driver


@pytest.fixture(scope="module")
def addresses(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")
    found = {}
    for name, make in PAGES.items():
        path = folder / f"{name}.html"
        path.write_text(make(), encoding="utf-8")
        found[name] = path.as_uri()
    return found


@pytest.fixture
def visit(browser, addresses):
    """Open a page as a reader has it: theme, width, with or without scripts."""

    def go(name, *, theme="light", width=1200, script=True):
        phone = width < 600
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": phone},
        )
        # Smooth scrolling would move what is about to be clicked.
        wishes = {"prefers-color-scheme": theme, "prefers-reduced-motion": "reduce"}
        features = [{"name": name, "value": value} for name, value in wishes.items()]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not script})
        browser.get("about:blank")
        browser.get(addresses[name])
        return browser

    yield go
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


def evaluate(browser, expression):
    return browser.execute_script(f"return {expression}")


@pytest.mark.parametrize("name", PAGES)
def test_pages_open_from_disk_without_errors(visit, name):
    browser = visit(name)
    assert evaluate(browser, "document.querySelector('main') !== null")
    # A script that did not run, a style that the policy refused or a name that became markup is logged.
    assert browser.get_log("browser") == []
    assert evaluate(browser, "performance.getEntriesByType('resource').length") == 0
    assert evaluate(browser, "getComputedStyle(document.body).maxWidth") != "none"
    assert evaluate(browser, "document.querySelectorAll('script').length") == 0


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [320, 375, 768])
def test_narrow_pages_do_not_scroll_sideways(visit, name, width):
    browser = visit(name, width=width)
    unfold(browser)
    assert evaluate(browser, "document.documentElement.scrollWidth") <= width
    assert evaluate(browser, "document.body.scrollWidth") <= width


def unfold(browser):
    """Open everything that is folded away."""
    browser.execute_script("document.querySelectorAll('details').forEach(d => { d.open = true; })")


def test_wide_tables_of_narrow_pages_say_that_more_follows(visit):
    browser = visit("audit", width=375)
    unfold(browser)
    wide = "[...document.querySelectorAll('.table')].filter(t => t.scrollWidth > t.clientWidth + 1)"
    assert evaluate(browser, f"{wide}.length") > 0
    assert evaluate(browser, f"{wide}.every(t => getComputedStyle(t).backgroundImage.includes('gradient'))")
    first = "t.querySelector('tbody td')"
    assert evaluate(browser, f"{wide}.every(t => getComputedStyle({first}).position === 'sticky')")
    left = f"{wide}.map(t => {{ t.scrollLeft = 999; return {first}.getBoundingClientRect().left"
    left += " - t.getBoundingClientRect().left; })"
    assert all(0 <= each <= 2 for each in evaluate(browser, left))
    assert evaluate(browser, f"{wide}.every(t => {first}.clientWidth >= 60)")  # words are not broken


@pytest.mark.parametrize("width", [375, 1200])
def test_headers_of_long_names_do_not_overlap(visit, width):
    browser = visit("long-names", width=width)
    unfold(browser)
    spilled = """[...document.querySelectorAll('th, .cards td')].filter(t => t.getClientRects().length)
        .filter(t => t.scrollWidth > t.clientWidth + 1).map(t => t.textContent)"""
    assert evaluate(browser, spilled) == []


@pytest.mark.parametrize("name", ["audit", "long-names", "comparison", "training"])
def test_labels_of_charts_are_not_cut_off(visit, name):
    browser = visit(name, width=375)
    unfold(browser)
    outside = """[...document.querySelectorAll('svg.chart text')].filter(t => {
        const box = t.getBBox(), room = t.ownerSVGElement.viewBox.baseVal;
        const at = t.hasAttribute('transform') ? 0 : box.x;
        return t.getClientRects().length && (at < -2 || at + box.width > room.width + 2);
    }).map(t => t.textContent)"""
    assert evaluate(browser, outside) == []


def test_the_theme_follows_the_reader(visit):
    def colours(theme):
        browser = visit("audit", theme=theme)
        paper = evaluate(browser, "getComputedStyle(document.body).backgroundColor")
        text = evaluate(browser, "getComputedStyle(document.querySelector('.chart text')).fill")
        return paper, text

    light, dark = colours("light"), colours("dark")
    assert sum(map(int, light[0][4:-1].split(","))) > 700
    assert sum(map(int, dark[0][4:-1].split(","))) < 120
    assert light[1] != dark[1]


def test_explanations_open(visit):
    browser = visit("audit")
    assert not evaluate(browser, "document.querySelector('details').open")
    browser.find_element("css selector", "details summary").click()
    assert evaluate(browser, "document.querySelector('details').open")


def test_pages_are_readable_without_scripts(visit, browser):
    visit("audit", script=False)
    # The tree comes over the protocol: no script runs in the page.
    root = browser.execute_cdp_cmd("DOM.getDocument", {"depth": -1})["root"]["nodeId"]

    def count(selector):
        found = browser.execute_cdp_cmd("DOM.querySelectorAll", {"nodeId": root, "selector": selector})
        return len(found["nodeIds"])

    assert count("table") >= 4
    assert count("svg[role=img]") >= 2


def test_printing_shows_what_is_folded_away(visit):
    browser = visit("audit", theme="dark")
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert evaluate(browser, "getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    shown = "[...document.querySelectorAll('details table')].filter(t => t.getClientRects().length).length"
    assert evaluate(browser, shown) >= 4
    printed = base64.b64decode(browser.execute_cdp_cmd("Page.printToPDF", {})["data"])
    assert printed.startswith(b"%PDF")
    assert len(printed) > 50_000


@pytest.mark.parametrize("name", ["audit", "comparison", "training"])
def test_printed_tables_are_not_cut_off(visit, name):
    browser = visit(name, width=690)  # A4 less its margins, in CSS pixels
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    cut = "[...document.querySelectorAll('.table')].filter(t => t.scrollWidth > t.clientWidth + 1)"
    assert evaluate(browser, f"{cut}.map(t => t.getAttribute('aria-label'))") == []


def test_every_control_is_reachable_by_keyboard(visit):
    browser = visit("audit")
    assert evaluate(browser, "document.querySelectorAll('summary, .table[tabindex]').length") > 10
