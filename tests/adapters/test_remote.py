"""Remote models: a real server that fails at times, repeated rows, resuming, and the limit on rows."""

import json
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import gcig
from gcig._validation import InputError
from gcig.adapters.explainers import SHAPLEY_BUDGET
from gcig.adapters.remote import RemoteModelError, Workload

RNG = np.random.default_rng(0)
SEX = np.where(np.arange(400) % 2, "f", "m")
ROWS = pd.DataFrame(RNG.normal(size=(400, 5)), columns=list("abcde"))
ROWS["a"] += 0.8 * (SEX == "m")
ROWS["job"] = RNG.choice(["x", "y", "z"], 400)
Y = (ROWS["a"] - ROWS["b"] + (ROWS["job"] == "x") + RNG.normal(size=400) > 0.4).astype(int)
MODEL = make_pipeline(
    make_column_transformer((OneHotEncoder(), ["job"]), remainder="passthrough"), LogisticRegression()
).fit(ROWS, Y)


class Service:
    """A scoring service on this machine that answers every ``fails``-th request with a status of its own."""

    def __init__(self, fails: int = 0, status: int = 503, after: int = 0) -> None:
        service = self
        self.fails, self.status, self.after = fails, status, after
        self.requests = self.rows = 0

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.requests += 1
                if (
                    service.fails
                    and service.requests > service.after
                    and service.requests % service.fails == 0
                ):
                    self.send_response(service.status)
                    self.send_header("Retry-After", "0.01")
                    self.end_headers()
                    return
                service.rows += len(content)
                answer = json.dumps(MODEL.predict_proba(pd.DataFrame(content))[:, 1].tolist()).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/"

    def __enter__(self) -> "Service":
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def post(self, rows: pd.DataFrame) -> list[float]:
        body = rows.to_json(orient="records", double_precision=15).encode()
        with urllib.request.urlopen(urllib.request.Request(self.url, body)) as answer:
            return json.loads(answer.read())


def test_an_audit_survives_a_service_that_fails_at_times() -> None:
    with Service(fails=3) as service:
        model = gcig.RemoteModel(service.post, row_budget=25_000, wait=0.01)
        estimate = model.estimate(ROWS, sensitive_features=SEX)
        found = gcig.audit(model, ROWS, Y, sensitive_features=SEX, n_bootstrap=100, include_rows=True).record
    rows = sum(rows for part, rows in estimate.items() if part != "calls")
    assert service.rows == model.sent == found.subject.rows_sent <= rows <= 25_000
    assert model.calls <= estimate["calls"]
    assert model.retried > 10
    assert found.subject.model_kind == "remote model"
    exact = gcig.evaluate(MODEL, ROWS, Y, sensitive_features=SEX)
    assert found.outcome.auc.value == pytest.approx(exact.auc)
    # Fewer rows are explained, with a stated precision: the truth is inside the interval.
    reach = 3 * found.procedural.standard_error
    assert found.procedural.gcig.low - reach < exact.gcig < found.procedural.gcig.high + reach
    assert found.procedural.sampled_rows < 400
    assert any("to send fewer rows to the model" in line for line in found.verdict.cautions)


def test_an_interrupted_measurement_resumes_from_its_cache(tmp_path) -> None:
    cache = tmp_path / "scores.sqlite"
    options = {"sensitive_features": SEX, "n_bootstrap": 0}
    with Service(fails=1, after=12) as service:
        model = gcig.RemoteModel(service.post, row_budget=20_000, retries=1, wait=0.01, cache=cache)
        with pytest.raises(
            RemoteModelError, match=r"called 2 times .*status 503.*start again to resume"
        ) as stop:
            gcig.evaluate(model, ROWS, Y, **options)
    assert stop.value.attempts == 2
    with Service() as service:
        model = gcig.RemoteModel(service.post, row_budget=20_000, cache=cache)
        resumed = gcig.evaluate(model, ROWS, Y, **options)
        assert model.sent == service.rows > 0
        again = gcig.RemoteModel(service.post, row_budget=20_000, cache=cache)
        assert gcig.evaluate(again, ROWS, Y, **options) == resumed
        assert again.sent == 0
    whole = gcig.RemoteModel(lambda rows: MODEL.predict_proba(rows)[:, 1], row_budget=20_000)
    assert gcig.evaluate(whole, ROWS, Y, **options).gcig == pytest.approx(resumed.gcig, rel=1e-6)
    assert whole.sent == stop.value.sent + model.sent
    assert b"job" not in cache.read_bytes()  # no entry and no name of the table


def test_errors_that_do_not_pass_are_not_repeated() -> None:
    with Service(fails=1, status=401) as service:
        model = gcig.RemoteModel(service.post, wait=0.01)
        with pytest.raises(RemoteModelError, match=r"called once \(HTTPError, status 401\).*Pass cache="):
            model(ROWS)
    assert service.requests == 1

    def faulty(rows):
        raise KeyError("a bug of the user")

    with pytest.raises(KeyError):
        gcig.RemoteModel(faulty)(ROWS)


def test_pauses_grow_and_follow_the_service(monkeypatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("gcig.adapters.remote.time.sleep", pauses.append)

    def busy(rows):
        raise ConnectionError

    with pytest.raises(InputError, match=r"failed on these rows \(.*pass gcig\.RemoteModel"):
        gcig.evaluate(busy, ROWS, Y, sensitive_features=SEX)
    with pytest.raises(RemoteModelError):
        gcig.RemoteModel(busy, retries=4, wait=1.0)(ROWS)
    np.testing.assert_allclose(pauses, [1, 2, 4, 8], rtol=0.21)

    def limited(rows):
        raise urllib.error.HTTPError("", 429, "slow down", {"Retry-After": "7"}, None)

    pauses.clear()
    with pytest.raises(RemoteModelError):
        gcig.RemoteModel(limited, retries=2)(ROWS)
    assert pauses == [7.0, 7.0]


def test_repeated_rows_are_sent_once_in_batches() -> None:
    sizes = []

    def predict(rows):
        sizes.append(len(rows))
        return MODEL.predict_proba(rows)[:, 1]

    model = gcig.RemoteModel(predict, batch_rows=150)
    twice = pd.concat([ROWS, ROWS])
    np.testing.assert_allclose(model(twice), MODEL.predict_proba(twice)[:, 1])
    assert sizes == [150, 150, 100]
    renamed = ROWS.rename(columns={"a": "b", "b": "a"})  # the same values under other names
    model(renamed[list(ROWS.columns)])
    assert model.sent == 800


def test_the_row_budget_is_a_limit() -> None:
    with pytest.raises(InputError, match=r"row_budget is 300, but even the roughest measurement may need"):
        gcig.audit(gcig.RemoteModel(MODEL.predict_proba, row_budget=300), ROWS, Y, sensitive_features=SEX)
    model = gcig.RemoteModel(MODEL.predict_proba, row_budget=100)
    model.begin()
    with pytest.raises(RemoteModelError, match="row budget of 100 rows is spent"):
        model(ROWS)
    with pytest.raises(InputError, match="row_budget must be at least 1"):
        gcig.RemoteModel(MODEL.predict_proba, row_budget=0)


def test_a_larger_limit_is_a_more_precise_measurement() -> None:
    work = Workload(SimpleNamespace(names=range(14), n_levels=100, random=True), 1000, 2)
    small, large = work.fit(40_000), work.fit(400_000)
    assert small.rows < large.rows <= SHAPLEY_BUDGET.rows
    assert small.pairs <= large.pairs
    assert small.shuffles >= 19  # fewer could not reach significance
    for limit, budget in ((40_000, small), (400_000, large)):
        assert 0.6 * limit < sum(work.rows_sent(budget).values()) <= limit


def test_a_file_that_is_no_cache_is_refused(tmp_path) -> None:
    (tmp_path / "x.csv").write_text("a,b\n1,2\n" * 200)
    with pytest.raises(InputError, match=r"cache is .*not a cache of scores"):
        gcig.RemoteModel(MODEL.predict_proba, cache=tmp_path / "x.csv")
