"""Fault 30: names that reach a page, which is then opened in a real browser."""

import warnings

import gcig
from gcig.methods.registry import METHODS
from support.browsers import needs_browser, open_browser
from tables import QUICK, make_loans

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
    return gcig.audit(model, X, y, sensitive_features=sex, n_bootstrap=20, n_shuffles=19, name=a).to_html()


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
