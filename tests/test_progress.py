import sys

import pytest

from gcig._progress import printable, progress, silent


def pretend_terminal(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)


def test_nothing_is_shown_unless_requested(capsys):
    with progress(3, "Scoring", shown=False) as advance:
        advance(3, auc=0.5)
    assert capsys.readouterr() == ("", "")


def test_a_pipe_gets_lines_with_figures(capsys):
    with progress(2, "Scoring", unit="epochs") as advance:
        advance(auc=0.81234, trial="adult fairx")
        advance()
    expected = "Scoring: 1 of 2 epochs, auc 0.812, trial adult fairx\nScoring: 2 of 2 epochs\n"
    assert capsys.readouterr() == ("", expected)


def test_a_pipe_gets_at_most_twenty_lines(capsys):
    with progress(1000, "Scoring") as advance:
        for _ in range(1000):
            advance()
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 20
    assert lines[-1] == "Scoring: 1,000 of 1,000 rows"


def test_a_long_task_reports_what_it_has_done_and_a_short_one_nothing(capsys, monkeypatch):
    clock = iter([0.0, 1.0, 6.0, 7.0])
    monkeypatch.setattr("gcig._progress.perf_counter", lambda: next(clock))
    with progress(3, "Explaining", unit="people", after=5) as advance:
        advance()
        assert capsys.readouterr().err == ""
        advance()
        advance()
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["Explaining: 2 of 3 people", "Explaining: 3 of 3 people"]


def test_nothing_is_reported_if_silence_is_asked_for(capsys):
    with silent(), silent(on=False), progress(1, "Scoring") as advance:
        advance()
    assert capsys.readouterr().err == ""


def test_counts_may_be_fractions(capsys):
    with progress(3, "Scoring") as advance:
        advance(1.5)
        advance(1.5)
    assert capsys.readouterr().err.endswith("3 of 3 rows\n")


def test_a_terminal_gets_a_bar_that_disappears(capsys, monkeypatch):
    pretend_terminal(monkeypatch)
    pytest.importorskip("tqdm")
    with progress(3, "Scoring") as advance:
        advance(3, auc=0.5)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "Scoring" in shown.err
    assert shown.err.endswith("\r")


def test_a_terminal_without_tqdm_gets_lines(capsys, monkeypatch):
    pretend_terminal(monkeypatch)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    with progress(1, "Scoring") as advance:
        advance()
    assert capsys.readouterr().err == "Scoring: 1 of 1 rows\n"


def test_the_bar_is_closed_after_an_error(monkeypatch):
    pretend_terminal(monkeypatch)
    tqdm = pytest.importorskip("tqdm")
    bars = []

    class Bar(tqdm.tqdm):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            bars.append(self)

    monkeypatch.setattr(tqdm, "tqdm", Bar)
    with pytest.raises(RuntimeError), progress(3, "Scoring"):
        raise RuntimeError
    assert bars[0].disable  # tqdm sets it on closed bars


def test_control_characters_do_not_reach_the_terminal(capsys):
    with progress(1, "Scoring \x1b[31m") as advance:
        advance(name="\x07")
    assert capsys.readouterr().err == "Scoring ?[31m: 1 of 1 rows, name ?\n"
    assert printable("é ü\n") == "é ü\n"
