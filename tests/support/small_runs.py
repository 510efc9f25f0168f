"""Small benchmark runs: a table and work that finishes within a second, and methods that fail."""

import contextlib
import os
import signal
import time
from pathlib import Path

import numpy as np
import pandas as pd

from gcig.benchmark.store import RunStore
from gcig.benchmark.tables import Table
from gcig.benchmark.trials import Trial, fold_trials
from gcig.methods.registry import METHODS, Method
from gcig.methods.unconstrained import UnconstrainedClassifier

QUICK = {"max_epochs": 2, "hidden_sizes": [4]}


def small_table(n=160, seed=0, name="small", task="binary"):
    rng = np.random.default_rng(seed)
    sex = rng.choice(["f", "m"], n)
    X = pd.DataFrame({"income": rng.normal(size=n) + (sex == "m"), "town": rng.choice(["a", "b", "c"], n)})
    latent = X["income"] + rng.normal(size=n)
    labels = {"binary": (latent > 0.5).astype(int), "number": latent}
    y = labels.get(task, pd.cut(latent, [-9, -0.2, 0.8, 9], labels=["low", "middle", "high"]).astype(str))
    return Table.of(X, y, sensitive_features=pd.Series(sex, name="sex"), name=name, task=task)


def small_trials(table, methods=("unconstrained", "hardt", "fairx"), n_folds=3, **options):
    return [trial for m in methods for trial in fold_trials(table, m, QUICK, n_folds=n_folds, **options)]


def small_store(path, *tables, **configuration):
    return RunStore.open(path, tables=tables, configuration=configuration)


def one_trial(**changes):
    return Trial(**{"dataset": "small", "data_hash": "0", "method": "fairx", **changes})


class BrokenClassifier(UnconstrainedClassifier):
    def fit(self, *_, **__):
        raise ArithmeticError("a first line\nand a second")


class KilledClassifier(UnconstrainedClassifier):
    def fit(self, *_, **__):
        os.kill(os.getpid(), signal.SIGKILL)


class KilledOnceClassifier(UnconstrainedClassifier):
    """Kills its process unless the file that an environment variable names exists; creates it first."""

    n_kills = 1

    def fit(self, *data, **named):
        for number in range(self.n_kills):
            marker = Path(os.environ["GCIG_KILLED"] + str(number))
            if not marker.exists():
                marker.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(*data, **named)


class KilledTwiceClassifier(KilledOnceClassifier):
    n_kills = 2


class HangingClassifier(UnconstrainedClassifier):
    """Writes its process id to the file that an environment variable names, and does not end."""

    def fit(self, *_, **__):
        Path(os.environ["GCIG_HANGING"]).write_text(str(os.getpid()))
        time.sleep(600)


@contextlib.contextmanager
def registered(key, estimator):
    location = f"{estimator.__module__}:{estimator.__qualname__}"
    METHODS.add(key, Method(key, key, {"binary": location}), overwrite=True)
    try:
        yield key
    finally:
        del METHODS.data[key]
