"""Cost of a whole fit and of an evaluation."""

import time
from collections.abc import Callable, Iterator

import torch
from sklearn.neural_network import MLPClassifier
from threadpoolctl import threadpool_limits

import gcig
from benchmarks import adult
from benchmarks.core import literal_epoch
from benchmarks.measurement import Row, report
from gcig.methods.unconstrained import UnconstrainedClassifier

EPOCHS, BATCH, ROUNDS = 10, 512, 3  # batch_size="auto" is 512 for Adult


def fit_rows() -> Iterator[Row]:
    """Compare FairX with the plain network, and the plain network with scikit-learn's, on Adult."""
    data = gcig.load_dataset("adult")
    groups = data.sensitive_features
    common = {"max_epochs": EPOCHS, "patience": EPOCHS, "device": "cpu", "random_state": 0}
    plain = UnconstrainedClassifier(**common)
    encoded = UnconstrainedClassifier(**{**common, "max_epochs": 1})
    encoded = encoded.fit(data.X, data.y, sensitive_features=groups).encode(data.X)

    def fit(model: object) -> Callable[[], object]:
        return lambda: model.fit(data.X, data.y, sensitive_features=groups)  # type: ignore[attr-defined]

    def encoded_plain() -> object:
        other = UnconstrainedClassifier(**common, early_stopping=False, preprocessing="none")
        return other.fit(encoded, data.y, sensitive_features=groups)

    def sklearn() -> object:
        other = MLPClassifier(
            (64, 32), batch_size=BATCH, max_iter=EPOCHS, n_iter_no_change=EPOCHS + 1, random_state=0
        )
        return other.fit(encoded, data.y)

    section = f"A whole fit on Adult, {EPOCHS} epochs, batch {BATCH}, one thread"
    report("whole fits")
    rows = adult.load()
    fits: dict[str, Callable[[], object]] = {
        "plain": fit(plain),
        "fairx": fit(gcig.FairXClassifier(**common, repair="always")),
        "checked": fit(gcig.FairXClassifier(**common)),
        "encoded plain": encoded_plain,
        "sklearn": sklearn,
    }
    seconds: dict[str, list[float]] = {name: [] for name in fits}
    for _ in range(ROUNDS):
        for name, run in fits.items():
            seconds[name].append(cpu_seconds(run))
    least = {name: min(each) for name, each in seconds.items()}  # the fastest round was disturbed least
    yield Row(
        section,
        "FairX, defaults, check included / plain",
        least["checked"] / least["plain"],
        must=6.0,
        aim=4.0,
    )
    yield Row(section, "FairX, repair='always' / plain", least["fairx"] / least["plain"])
    literal = cpu_seconds(literal_epoch(adult.network("silu"), adult.baselines(rows), rows, 1)) * EPOCHS
    note = "one epoch timed"
    yield Row(
        section,
        "a literal Algorithm 1, T = 16 / FairX",
        literal / least["checked"],
        must=4.0,
        at_least=True,
        note=note,
    )
    ratio = least["encoded plain"] / least["sklearn"]
    note = "both on the encoded table, nothing held out; scikit-learn has no SiLU and trains ReLU"
    yield Row(section, "plain / scikit-learn's MLPClassifier", ratio, must=1.0, note=note)


def evaluation_rows() -> Iterator[Row]:
    """Time an evaluation of 10,000 rows of a network."""
    report("an evaluation of 10,000 rows")
    data = gcig.load_dataset("adult")
    groups = data.sensitive_features
    model = UnconstrainedClassifier(max_epochs=1, device="cpu", random_state=0)
    model.fit(data.X, data.y, sensitive_features=groups)
    rows = {"X": data.X[:10_000], "y": data.y[:10_000], "sensitive_features": groups[:10_000]}
    seconds = cpu_seconds(lambda: gcig.evaluate(model, **rows))
    yield Row(
        "Evaluation of 10,000 rows of Adult, one thread", "gcig.evaluate", seconds, unit=" s", must=10.0
    )


def cpu_seconds(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call on one thread."""
    with threadpool_limits(1):
        torch.set_num_threads(1)
        start = time.process_time()
        call()
        return time.process_time() - start
