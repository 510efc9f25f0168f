"""Adult: prediction of an income above 50,000 dollars a year. US census, 1994."""

from __future__ import annotations

from functools import partial

from gcig.data.datasets.spec import DatasetSpec, ProtectedAttribute, read_shipped

ADULT = DatasetSpec(
    name="adult",
    title="Adult (census income)",
    load=partial(read_shipped, "adult"),
    rows=45_222,
    inputs=(
        *("age", "workclass", "fnlwgt", "education", "education-num", "marital-status"),
        *("occupation", "relationship", "race", "sex", "capital-gain", "capital-loss"),
        *("hours-per-week", "native-country"),
    ),
    target="income",
    positive=">50K",
    positive_means="income above 50,000 dollars a year",
    protected=(
        ProtectedAttribute("sex", "Female or Male, as the census recorded it."),
        ProtectedAttribute("race", "The five categories of the census."),
    ),
    source="UCI Machine Learning Repository, https://doi.org/10.24432/C5XW20 (adult.data, adult.test)",
    licence="CC BY 4.0",
    citation="Becker, B. and Kohavi, R. (1996). Adult. UCI Machine Learning Repository.",
    sha256={
        "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
        "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
    },
    traps=(
        "The FairX paper prints 4522 rows. The table has 45,222: the 48,842 rows of the two raw files, less "
        "the 3,620 with a missing value. Both files are used, in the order adult.data, adult.test.",
        "relationship has the values Husband and Wife, so X reveals sex even with include_sensitive=False.",
        "education and education-num carry the same information, and attributions are divided between "
        "them. fnlwgt is a sampling weight of the census, not a fact about the person.",
    ),
    harms=(
        "The threshold of 50,000 dollars is arbitrary, and measured disparities depend on it "
        "(Ding, Hardt, Miller and Schmidt 2021, Retiring Adult).",
        "Incomes and occupations are those of 1994: no model of them should decide about anyone today.",
        "Sex has two values and race five, as the census form had them; others are not represented.",
    ),
)
