"""Fault 30: names that reach a page, which is then opened in a real browser, or a figure."""

import warnings

import pandas as pd
import pytest

import gcig
from example_tables import QUICK, make_loans, make_raw_loans
from gcig.methods.registry import METHODS
from gcig.report import displays
from support.browsers import needs_browser, open_browser

LOANS = make_loans(120)
PAYLOADS = (
    "<script>document.title='owned'</script>",
    '"><img src=x onerror="document.title=\'owned\'">',
    "</title><svg onload=document.title='owned'>",
    "javascript:document.title='owned'",
)


def hostile_page():
    """Return the page of a real audit in which every name is hostile."""
    a, b, c, d = PAYLOADS
    X = LOANS.X.rename(columns={"income": a, "debt": b, "age": d})
    X["job"] = X["job"].replace({"nurse": a, "clerk": c})
    y = LOANS.y.map({0: b, 1: c})
    sex = LOANS.sex.replace({"male": a, "female": c}).rename(b)
    model = METHODS["unconstrained"].estimator(**QUICK).fit(X, y, sensitive_features=sex)
    return gcig.audit(model, X, y, sensitive_features=sex, n_bootstrap=20, name=a).to_html()


def test_fault_30_names_are_escaped_on_a_page():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        page = hostile_page()
    assert "&lt;script&gt;" in page
    for payload in PAYLOADS[:3]:
        assert payload not in page


@needs_browser
def test_fault_30_no_script_runs_in_a_browser(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (tmp_path / "page.html").write_text(hostile_page(), encoding="utf-8")
    with open_browser() as browser:
        browser.get((tmp_path / "page.html").as_uri())
        assert browser.title != "owned"
        assert browser.execute_script("return document.querySelectorAll('img, svg[onload]').length") == 0
        assert browser.execute_script("return document.body.innerText.includes('<script>')")


@needs_browser
@pytest.mark.slow
def test_fault_30_no_script_runs_on_the_page_of_any_command(shell, tmp_path):
    """Every name of the file is hostile: columns, categories, groups, labels and the name of the file."""
    a, b, c, d = PAYLOADS
    table = make_raw_loans(200)
    job, sex = table["job"].replace({"nurse": a, "clerk": c}), table["sex"].map({"female": a, "male": c})
    approved = table["approved"].map({"yes": a, "no": b})
    # The names of folders cannot hold a slash.
    folder = tmp_path / a.replace("/", "")
    columns = {"id": [f"{b}{i}" for i in range(200)], a: table["income"], b: table["owner"], c: job}
    folder.mkdir()
    pd.DataFrame({**columns, d: sex, "approved": approved}).to_csv(folder / "t.csv", index=False)
    quick = ["--epochs", "2", "--quiet"]
    roles = ["--target", "approved", "--positive", a, "--sensitive", d]
    own = [*roles, "--drop", "id"]
    train = ["train", folder / "t.csv", *own, "--out", folder / "m", *quick]
    family = ["tradeoff", folder / "t.csv", *own, "--out", folder / "family", *quick]
    audit = ["audit", folder / "m", folder / "t.csv", *roles, "--min-cell", "1", "--quiet", "--html"]
    explain = ["explain", folder / "m", folder / "t.csv", *roles, "--id-column", "id", "--id", f"{b}3"]
    compare = ["compare", folder / "t.csv", *own, "--methods", "unconstrained,hardt", "--folds", "2", "-q"]
    commands = [train, family, [*audit, folder / "a.html"], [*explain, "--html", folder / "e.html"]]
    commands += [[*compare, "--jobs", "1", "--out", folder / "run"]]
    for command in commands:
        code, _, err = shell(*command)
        assert code in (0, 1, 3), err
    pages = sorted(folder.rglob("*.html"))
    assert len(pages) >= 5, pages
    with open_browser() as browser:
        for page in pages:
            browser.get(page.as_uri())
            assert browser.title != "owned", page
            found = browser.execute_script("return document.querySelectorAll('img, svg[onload]').length")
            assert found == 0, page
            # The text of closed parts is not in innerText.
            browser.execute_script("document.querySelectorAll('details').forEach(part => part.open = true)")
            assert browser.execute_script("return document.body.innerText.includes('<script>')"), page


def test_fault_30_dollar_signs_are_plain_text_in_figures():
    """matplotlib reads text between dollar signs as mathematics, and fails if that is not well formed."""
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("agg")
    from matplotlib import pyplot

    names = ["$x^{", "a$b$c", r"$\frac{1}{$", "_hidden", "$$"]
    X = LOANS.X.set_axis(names, axis=1)
    sex = LOANS.sex.replace({"male": "$m_{"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = METHODS["unconstrained"].estimator(**QUICK).fit(X, LOANS.y, sensitive_features=sex)
        options = {"n_bootstrap": 20, "min_cell": 1}  # there are few rows
        found = gcig.audit(model, X, LOANS.y, sensitive_features=sex, **options)
    rates = displays.GroupRatesDisplay.from_evaluation(found.evaluation)
    reasons = displays.AttributionProfileDisplay.from_explanation(model.explain(X, LOANS.y))
    for display, expected in ((rates, ["$m_{"]), (reasons, [*names, "$m_{"])):
        display.figure_.canvas.draw()
        texts = [text.get_text() for text in display.figure_.findobj(matplotlib.text.Text)]
        for name in expected:
            assert any(name.replace("$", r"\$") in text for text in texts), (name, texts)
    pyplot.close("all")
