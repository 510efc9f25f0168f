"""Bank Marketing: prediction of a term deposit after a call. Portugal, 2008 to 2010."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gcig.data.datasets.spec import DatasetSpec, ProtectedAttribute, read_shipped, two_groups

if TYPE_CHECKING:
    import pandas as pd


def age_25_to_59(frame: pd.DataFrame) -> pd.Series[str]:
    """Return two groups: clients of middle age, and the youngest and oldest together."""
    return two_groups(frame["age"].between(25, 59), "25 to 59", "under 25 or over 59")


def married(frame: pd.DataFrame) -> pd.Series[str]:
    """Return two groups: married or not."""
    return two_groups(frame["marital"] == "married", "married", "not married")


BANK = DatasetSpec(
    name="bank",
    title="Bank Marketing",
    load=partial(read_shipped, "bank"),
    rows=45_211,
    inputs=(
        *("age", "job", "marital", "education", "default", "balance", "housing", "loan", "contact"),
        *("day", "month", "duration", "campaign", "pdays", "previous", "poutcome"),
    ),
    target="y",
    positive="yes",
    positive_means="subscribed to a term deposit",
    protected=(
        ProtectedAttribute("age", "25 to 59 years old or not.", groups=age_25_to_59),
        ProtectedAttribute("marital", "Married or not.", groups=married),
    ),
    source="UCI Machine Learning Repository, https://doi.org/10.24432/C5K306 (bank-full.csv)",
    licence="CC BY 4.0",
    citation=(
        "Moro, S., Cortez, P. and Rita, P. (2014). A data-driven approach to predict the success of bank "
        "telemarketing. Decision Support Systems 62, 22-31."
    ),
    sha256={"bank-full.csv": "d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d"},
    traps=(
        "duration is the length of the call in seconds, known only when the call is over, as is the answer. "
        "It is kept because published tables keep it; drop it from X for a model that will be used.",
        "The FairX paper prints 45,211 rows and 21 features: the rows of bank-full.csv, used here, with the "
        "columns of bank-additional-full.csv.",
        "pdays is -1 for clients who were never called before: a code in a column of numbers.",
        "The rows are in order of time, and the share of label 1 grows: shuffle before splitting.",
    ),
    harms=(
        "The group under 25 or over 59 combines students and pensioners, whose situations differ.",
        "The clients of one bank in the years of a financial crisis: base rates do not generalise.",
    ),
)
