from dataclasses import replace

from gcig.report.audit_page import audit_page
from gcig.report.training_page import training_page
from support.audit_records import example, robustness
from support.fold_results import evaluation
from support.pages import Page


def test_the_references_have_a_section_if_the_record_has_them():
    read = Page(audit_page(example()))
    heading = "Robustness: does the conclusion depend on the reference?"
    assert heading not in read.texts
    assert "robustness=True (gcig audit --robustness) adds it" in read.text
    found = robustness(agrees=False)
    with_panel = Page(audit_page(replace(example(), robustness=found)))
    assert heading in with_panel.texts
    assert found.verdict in with_panel.texts
    assert any("callout-concern" in (a.get("class") or "") for a in with_panel.all("p"))
    for figure in found.figures:
        assert figure.description in with_panel.texts
    assert "these references reverse the order" in with_panel.text
    assert "robustness=True" not in with_panel.text
    one = Page(audit_page(replace(example(), robustness=robustness(paired=False))))
    assert "other model" not in one.texts
    assert "noise" in one.texts
    assert any("callout-good" in (a.get("class") or "") for a in one.all("p"))


def test_the_training_page_names_both_models():
    found = {"Plain": evaluation(), "FairX": evaluation(robustness=robustness())}
    read = Page(training_page(found, title="t"))
    assert robustness().verdict in read.texts
    assert any(text.startswith("FairX, mean (headline)") for text in read.texts)
    assert any(text.startswith("Plain, members") for text in read.texts)
    assert "every reference orders the two models alike" in read.text
