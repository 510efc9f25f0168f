"""German Credit: prediction of good credit risks. A bank in southern Germany, 1973 to 1975."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gcig.data.datasets.spec import DatasetSpec, ProtectedAttribute, read_shipped, two_groups

if TYPE_CHECKING:
    import pandas as pd

# The repository's codebook, abbreviated. The raw file holds the codes; A47 and A95 do not occur in it.
CODEBOOK = {
    "checking_status": {
        "A11": "below 0 DM",
        "A12": "0 to 200 DM",
        "A13": "200 DM or more",
        "A14": "no checking account",
    },
    "credit_history": {
        "A30": "no credits, or all paid back duly",
        "A31": "all credits at this bank paid back duly",
        "A32": "existing credits paid back duly so far",
        "A33": "delays in the past",
        "A34": "critical account or credits elsewhere",
    },
    "purpose": {
        "A40": "new car",
        "A41": "used car",
        "A42": "furniture or equipment",
        "A43": "radio or television",
        "A44": "domestic appliances",
        "A45": "repairs",
        "A46": "education",
        "A47": "vacation",
        "A48": "retraining",
        "A49": "business",
        "A410": "other",
    },
    "savings": {
        "A61": "below 100 DM",
        "A62": "100 to 500 DM",
        "A63": "500 to 1000 DM",
        "A64": "1000 DM or more",
        "A65": "unknown or no savings",
    },
    "employment_since": {
        "A71": "unemployed",
        "A72": "less than 1 year",
        "A73": "1 to 4 years",
        "A74": "4 to 7 years",
        "A75": "7 years or more",
    },
    "personal_status_sex": {
        "A91": "male: divorced or separated",
        "A92": "female: divorced, separated or married",
        "A93": "male: single",
        "A94": "male: married or widowed",
        "A95": "female: single",
    },
    "other_debtors": {"A101": "none", "A102": "co-applicant", "A103": "guarantor"},
    "property": {
        "A121": "real estate",
        "A122": "savings agreement or life insurance",
        "A123": "car or other",
        "A124": "unknown or no property",
    },
    "other_installment_plans": {"A141": "bank", "A142": "stores", "A143": "none"},
    "housing": {"A151": "rent", "A152": "own", "A153": "for free"},
    "job": {
        "A171": "unemployed, or unskilled and not resident",
        "A172": "unskilled and resident",
        "A173": "skilled employee or official",
        "A174": "management, self-employed or highly qualified",
    },
    "telephone": {"A191": "none", "A192": "in the applicant's name"},
    "foreign_worker": {"A201": "yes", "A202": "no"},
}


def read_german() -> pd.DataFrame:
    """Return the table with the codebook's words in place of its codes."""
    frame = read_shipped("german")
    for column, words in CODEBOOK.items():
        frame[column] = frame[column].cat.rename_categories(words)
    return frame


def sex(frame: pd.DataFrame) -> pd.Series[str]:
    """Return female or male, the first word of attribute 9."""
    return frame["personal_status_sex"].astype(str).str.partition(":")[0]


def age_over_25(frame: pd.DataFrame) -> pd.Series[str]:
    """Return two age groups, split at 25 years."""
    return two_groups(frame["age"] > 25, "over 25", "25 or younger")


GERMAN = DatasetSpec(
    name="german",
    title="German Credit (Statlog)",
    load=read_german,
    rows=1_000,
    inputs=(
        *("checking_status", "duration", "credit_history", "purpose", "credit_amount", "savings"),
        *("employment_since", "installment_rate", "personal_status_sex", "other_debtors"),
        *("residence_since", "property", "age", "other_installment_plans", "housing"),
        *("existing_credits", "job", "dependents", "telephone", "foreign_worker"),
    ),
    target="credit",
    positive=1,
    positive_means="good credit",
    protected=(
        ProtectedAttribute(
            "sex",
            "Attribute 9 in the usual reading: A92 and A95 female, A91, A93 and A94 male.",
            columns=("personal_status_sex",),
            groups=sex,
        ),
        ProtectedAttribute("age", "Over 25 years old or not.", groups=age_over_25),
    ),
    source="UCI Machine Learning Repository, https://doi.org/10.24432/C5NC77 (german.data)",
    licence="CC BY 4.0",
    citation="Hofmann, H. (1994). Statlog (German Credit Data). UCI Machine Learning Repository.",
    sha256={"german.data": "b21f3d81db8071257d5ff1deaeba1fd4303b62712e6fcc9715c7a86202cb5871"},
    traps=(
        "Predicting good credit for everyone gives F1 0.824 with an equalized odds gap of 0 (700 of 1,000 "
        "rows are good). Read AUC and balanced accuracy along with F1.",
        "A test fold of 200 rows has (label, group) cells of 22 to 100 rows: even an exactly fair model "
        "shows an equalized odds gap there.",
        "The codebook is known to be wrong in places. Groemping (2019, South German Credit Data: Correcting "
        "a Widely Used Data Set) traced the codes back: A92 also holds single men and A93 is married or "
        "widowed men, so attribute 9 does not separate the sexes. `sex` here follows the literature, and "
        "the words in X are the repository's, right or wrong.",
    ),
    harms=(
        "Conclusions about women and men from this table are doubtful, see the trap on attribute 9.",
        "The credits were granted in the 1970s, bad ones are over-represented by design, and foreign_worker "
        "is an input: no model trained on them should decide about anyone today.",
    ),
)
