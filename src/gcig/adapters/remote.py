"""Models that are expensive to call, such as a service: rows are sent once, and failed calls repeated.

Shapley values need many evaluations of the model. `Workload` counts the rows that every part of a measurement
sends at most, and `Workload.fit` chooses the most precise `Budget` within a limit.
"""

import random
import sqlite3
import time
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from gcig._validation import InputError, check_features, check_groups
from gcig.adapters.base import check_probabilities
from gcig.adapters.entries import TableEncoding
from gcig.adapters.explainers import SHAPLEY_BUDGET, Budget
from gcig.core.shapley import count_points

_MAX_WAIT = 60.0  # seconds
_SCALES = tuple(0.9**k for k in range(60))  # shares of the default effort, in decreasing order
_TEMPORARY = (408, 425, 429)  # client errors of HTTP that may pass; other codes from 400 to 499 do not


class RemoteModelError(Exception):
    """A remote model that did not answer.

    Attributes
    ----------
    sent : int
        Rows that were answered before.
    attempts : int
        How often the last rows were sent.

    Examples
    --------
    >>> def busy(rows):
    ...     raise ConnectionError
    >>> try:
    ...     RemoteModel(busy, retries=0)(np.zeros((2, 3)))
    ... except RemoteModelError as error:
    ...     error.sent, error.attempts
    (0, 1)
    """

    def __init__(self, message: str, *, sent: int, attempts: int) -> None:
        super().__init__(message)
        self.sent = sent
        self.attempts = attempts


class RemoteModel:
    """A function from rows to probabilities that is expensive to call, for `gcig.audit` and `gcig.evaluate`.

    Rows are sent in batches, each distinct row once. A batch that fails for a temporary reason is sent again
    after a pause that doubles with every attempt. The measurement sends at most ``row_budget`` rows, at the
    cost of precision, which its intervals and cautions state.

    Parameters
    ----------
    predict : callable
        Maps a table (or array, as the audited rows are) to probabilities of the second class, (n,) or (n, 2).
    row_budget : int
        The most rows that one evaluation or audit sends.
    batch_rows : int
        The most rows per call.
    cache : str or Path, optional
        A file (SQLite) for the scores of all rows, by a hash of the row; no entry of a row is stored. A
        measurement that was interrupted resumes if it is started again with the same file. Use a new file
        for every version of the model.
    retries : int
        How often a batch is sent again before the measurement stops.
    retry_on : tuple of exception types
        Errors that may pass. Errors with an HTTP status from 400 to 499 do not, except 408, 425 and 429.
    wait : float
        The first pause in seconds, if the error does not say how long to wait (Retry-After).

    Attributes
    ----------
    sent, calls, retried : int
        Rows and calls that were answered, and calls that failed and were sent again.

    Examples
    --------
    >>> model = RemoteModel(lambda rows: 1 / (1 + np.exp(-rows[:, 0])), batch_rows=2)
    >>> model(np.array([[0.0], [1.0], [0.0]])).round(2), model.sent
    (array([0.5 , 0.73, 0.5 ]), 2)
    """

    def __init__(
        self,
        predict: Callable[[Any], ArrayLike],
        *,
        row_budget: int = 100_000,
        batch_rows: int = 1000,
        cache: str | Path | None = None,
        retries: int = 6,
        retry_on: tuple[type[Exception], ...] = (OSError,),
        wait: float = 0.5,
    ) -> None:
        for name, value in (("row_budget", row_budget), ("batch_rows", batch_rows)):
            if value < 1:
                raise InputError(f"must be at least 1, got {value}.", argument=name)
        self.predict = predict
        self.row_budget, self.batch_rows = row_budget, batch_rows
        self.cache = None if cache is None else Path(cache)
        self.retries, self.retry_on, self.wait = retries, retry_on, wait
        self.sent = self.calls = self.retried = 0
        self.__name__ = getattr(predict, "__name__", type(predict).__name__)
        self._allowed: float = np.inf
        self._began = 0
        self._advance: Callable[[float], object] | None = None
        self._known: dict[int, float] = {}
        if self.cache is not None:
            with closing(self._connect()) as connection:
                self._known.update(connection.execute("SELECT row, score FROM scores"))

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(str(self.cache))
        try:
            connection.execute("CREATE TABLE IF NOT EXISTS scores (row INTEGER PRIMARY KEY, score REAL)")
        except sqlite3.DatabaseError as error:
            connection.close()
            raise InputError(
                f"is {self.cache}, which is not a cache of scores. Name a new file, or one that RemoteModel "
                "wrote.",
                argument="cache",
            ) from error
        return connection

    def begin(self, advance: Callable[[float], object] | None = None) -> None:
        """Begin a measurement: it may send ``row_budget`` rows; ``advance`` is called with rows sent."""
        self._began, self._advance = self.sent, advance
        self._allowed = self.sent + self.row_budget

    @property
    def measured(self) -> int:
        """Rows sent since the measurement began."""
        return self.sent - self._began

    def estimate(
        self, X: Any, *, sensitive_features: Any, audit: bool = True, robustness: bool = False
    ) -> dict[str, int]:
        """Return the most rows that each part of an audit or evaluation sends, and the most "calls"."""
        groups, n_rows = sensitive_features, len(check_features(X))
        n_groups = len(check_groups(groups, n_rows=n_rows).names)
        work = Workload(TableEncoding.learn([X]), n_rows, n_groups, audit, robustness)
        budget = work.fit(self.row_budget)
        return {**work.rows_sent(budget), "calls": work.calls(budget, self.batch_rows)}

    def __call__(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of the rows; only rows whose score is not known yet are sent."""
        keys = _row_keys(X)
        first = {key: place for place, key in reversed(list(enumerate(keys))) if key not in self._known}
        places = sorted(first.values())
        if self.sent + len(places) > self._allowed:
            raise RemoteModelError(
                f"the row budget of {self.row_budget:,} rows is spent. Raise row_budget, or measure fewer "
                "rows.",
                sent=self.sent,
                attempts=0,
            )
        for start in range(0, len(places), self.batch_rows):
            some = places[start : start + self.batch_rows]
            rows = X.iloc[some] if hasattr(X, "iloc") else X[some]
            scores = check_probabilities(self._ask(rows), rows, "remote model").tolist()
            self._remember({keys[place]: score for place, score in zip(some, scores, strict=True)})
            self.sent += len(some)
            self.calls += 1
            if self._advance is not None:
                self._advance(len(some))
        return np.array([self._known[key] for key in keys], dtype=np.float64)

    def _remember(self, scores: dict[int, float]) -> None:
        self._known.update(scores)
        if self.cache is not None:
            with closing(self._connect()) as connection, connection:
                connection.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?)", scores.items())

    def _ask(self, rows: Any) -> ArrayLike:
        """Call the function; retry after a pause if the failure may be temporary."""
        for attempt in range(self.retries + 1):
            try:
                return self.predict(rows)
            except self.retry_on as error:
                status = _status(error)
                final = status is not None and 400 <= status < 500 and status not in _TEMPORARY
                if final or attempt == self.retries:
                    raise self._describe(error, attempt + 1, status) from error
                self.retried += 1
                time.sleep(_pause(error, self.wait * 2**attempt))
        raise AssertionError("unreachable")  # the last attempt returns or raises

    def _describe(self, error: Exception, attempts: int, status: int | None) -> RemoteModelError:
        what = type(error).__name__ if status is None else f"{type(error).__name__}, status {status}"
        kept = "Pass cache= to be able to resume."
        if self.cache is not None:
            kept = f"The scores of {self.sent:,} rows are kept in {self.cache}: start again to resume."
        tried = "once" if attempts == 1 else f"{attempts} times"
        message = (
            f"the remote model did not answer: it was called {tried} ({what}). Check the service. {kept}"
        )
        return RemoteModelError(message, sent=self.sent, attempts=attempts)


def _row_keys(X: Any) -> list[int]:
    """Return a 64-bit hash of every row, with the names of the columns."""
    frame = X if hasattr(X, "iloc") else pd.DataFrame(np.asarray(X))
    names = pd.util.hash_array(np.array(list(map(str, frame.columns)), dtype=object))
    mixed = np.bitwise_xor.reduce(names) if hasattr(X, "iloc") else np.uint64(0)
    hashed = pd.util.hash_pandas_object(frame, index=False).to_numpy()
    return [int(key) for key in (hashed ^ mixed).view(np.int64)]


def _status(error: Exception) -> int | None:
    """Return the HTTP status of an error of urllib, requests or httpx; None if it has none."""
    found = getattr(error, "code", None)
    if not isinstance(found, int):
        found = getattr(getattr(error, "response", None), "status_code", None)
    return found if isinstance(found, int) else None


def _pause(error: Exception, wait: float) -> float:
    """Return how long to wait, in seconds: as the service asks, or about ``wait``."""
    headers = getattr(error, "headers", None) or getattr(getattr(error, "response", None), "headers", None)
    asked = headers.get("Retry-After") if headers is not None else None
    with suppress(ValueError):  # of a date
        wait = wait * random.uniform(0.8, 1.2) if asked is None else max(0.0, float(asked))
    return min(_MAX_WAIT, wait)


@dataclass(frozen=True)
class Workload:
    """The size of a measurement by Shapley values."""

    encoding: TableEncoding
    n_rows: int
    n_groups: int
    audit: bool = True  # whether GCIG is compared with chance and under other settings, as an audit does
    robustness: bool = False  # whether GCIG is measured under several references

    @property
    def n_columns(self) -> int:
        """Number of columns of the table."""
        return len(self.encoding.names)

    def rows_sent(self, budget: Budget) -> dict[str, int]:
        """Return the most rows that each part of the measurement sends to the model."""
        levels = min(self.encoding.n_levels, budget.max_levels)
        explained = min(self.n_rows, budget.rows or self.n_rows)
        coarse, cells = budget.shuffled_steps or budget.pairs, 2 * self.n_groups

        def explain(rows: int, pairs: int, sets: int = 1) -> int:
            points = count_points(
                self.n_columns, pairs, random=self.encoding.random, always=budget.exact_points
            )
            return min(rows, self.n_rows) * (1 + levels + sets * self.n_groups * points)

        parts = {
            "decisions": self.n_rows,
            "attributions": explain(explained, budget.pairs) + explain(budget.probe_rows, budget.pairs),
            "members": self._members(budget),
            "trust": cells * (budget.offset_rows + 256)
            + budget.importance_rows * (1 + self.n_columns)
            + budget.exchanged_rows * 3,
        }
        if self.audit:
            sets = 1 + budget.shuffles + budget.resamples
            parts["chance"] = explain(min(budget.shuffled_rows, budget.probe_rows), coarse, sets)
            tried = budget.stability_rows
            parts["stability"] = explain(tried, budget.pairs, 3) + explain(tried, 2 * budget.pairs)
        if self.robustness:
            parts["robustness"] = explain(budget.member_rows, coarse, 14) + parts["members"]
        return parts

    def _members(self, budget: Budget) -> int:
        """Return the rows sent to explain relative to members: strata of a few members each."""
        strata = min(8, budget.members)
        each = count_points(self.n_columns, budget.members // strata, random=True, always=budget.exact_points)
        return min(budget.member_rows, self.n_rows) * (1 + 2 * self.n_groups * strata * each)

    def calls(self, budget: Budget, batch_rows: int) -> int:
        """Return the most calls of the model with at most ``batch_rows`` rows each."""
        # Calls to explain rows of one label, and how often rows are explained.
        of_label = 1 + min(self.n_columns, self.encoding.n_levels) + budget.pairs
        explained = 2 + 4 * self.audit + 8 * self.robustness
        chunks = -(-budget.member_rows // 32) + 2
        begun = 1 + 2 * of_label * explained + 4 * chunks * (1 + budget.members) * (1 + self.robustness)
        return begun + 4 * self.n_groups + 6 + sum(self.rows_sent(budget).values()) // batch_rows

    def fit(self, limit: int, max_rows: int | None = None) -> Budget:
        """Return the most precise budget that sends at most ``limit`` rows, or raise an error."""
        for scale in _SCALES:
            budget = _scaled(scale)
            if max_rows is not None:
                budget = replace(budget, rows=min(max_rows, budget.rows or max_rows))
            if (total := sum(self.rows_sent(budget).values())) <= limit:
                return budget
        raise InputError(
            f"is {limit:,}, but even the roughest measurement may need up to {total:,} rows: {self.n_rows:,} "
            f"for decisions, the others for reasons. Raise it to that, or measure fewer rows or columns.",
            argument="row_budget",
        )


def _scaled(scale: float) -> Budget:
    """Return a share of the default effort, with a minimum for every part."""
    full = SHAPLEY_BUDGET

    def part(number: int | None, least: int) -> int:
        return max(least, round(scale * (number or 0)))

    many, some = scale > 0.3, scale > 0.03
    rows = part(full.rows, 20)
    return Budget(
        rows=rows,
        pairs=full.pairs if many else 8 if some else 4,
        probe_rows=min(rows, part(full.probe_rows, 12)),
        stability_rows=part(full.stability_rows, 4),
        shuffles=full.shuffles if many else 39 if some else 19,
        resamples=full.resamples if many else 20 if some else 10,
        shuffled_rows=max(8, round(scale**0.5 * full.shuffled_rows)),
        shuffled_steps=full.shuffled_steps if many else 1,
        member_rows=part(full.member_rows, 8),
        members=full.members if many else 8,
        offset_rows=part(full.offset_rows, 32),
        importance_rows=part(full.importance_rows, 32),
        exchanged_rows=part(full.exchanged_rows, 64),
        describes_others=False,
        exact_points=full.exact_points if many else 0,
        max_levels=part(full.max_levels, 32),
    )
