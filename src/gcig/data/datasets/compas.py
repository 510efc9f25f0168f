"""COMPAS: prediction of a new charge within two years. Broward County, Florida, 2013 and 2014.

Two datasets share one file. ``compas`` has no label leak; ``compas-paper`` adds the column that reveals the
label, which is needed to reproduce the paper's table.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gcig.data.datasets.spec import DatasetSpec, ProtectedAttribute, read_shipped, two_groups

if TYPE_CHECKING:
    import pandas as pd


def african_american(frame: pd.DataFrame) -> pd.Series[str]:
    """Return the two groups of ProPublica's comparison."""
    return two_groups(frame["race"] == "African-American", "African-American", "not African-American")


_TRAPS = (
    "6,172 of the 7,214 raw rows pass ProPublica's filter: screened within 30 days of the arrest, "
    "is_recid known, no ordinary traffic offence, a score given.",
    "decile_score, v_decile_score and score_text are predictions of the tool under study, not facts "
    "about the person.",
    "Recidivists were kept after the cut-off date that applied to others, which raises the base rate "
    "from 36% to 45% (Barenstein 2019, ProPublica's COMPAS Data Revisited).",
)
_LEAK_EXCLUDED = (
    "Published F1 near 0.97 comes from is_recid among the inputs, which reveals the label. It is "
    "excluded here; compas-paper includes it."
)

COMPAS = DatasetSpec(
    name="compas",
    title="COMPAS two-year recidivism",
    load=partial(read_shipped, "compas"),
    rows=6_172,
    inputs=(
        *("age", "juv_fel_count", "juv_misd_count", "juv_other_count", "priors_count"),
        *("decile_score", "v_decile_score", "days_b_screening_arrest", "sex", "race", "age_cat"),
        *("c_charge_degree", "score_text"),
    ),
    target="two_year_recid",
    positive=1,
    positive_means="charged again within two years",
    protected=(
        ProtectedAttribute("race", "African-American or not.", groups=african_american),
        ProtectedAttribute("sex", "Female or Male, as recorded."),
        ProtectedAttribute("race_all", "All six recorded categories; some are tiny.", columns=("race",)),
    ),
    source="ProPublica, https://github.com/propublica/compas-analysis (compas-scores-two-years.csv)",
    licence="none stated by ProPublica, which published the file in 2016",
    citation="Angwin, J., Larson, J., Mattu, S. and Kirchner, L. (2016). Machine Bias. ProPublica.",
    sha256={
        "compas-scores-two-years.csv": "c451db85908b2f7fef1d83203bedf6b71ecda0d5af468d82ae62178f91d0cc7d"
    },
    traps=(_LEAK_EXCLUDED, *_TRAPS),
    harms=(
        "The label is a new charge, not a new crime: if policing is unequal, so is the label "
        "(Bao et al. 2021, It's COMPASlicated).",
        "Real defendants of one county can be identified in the raw release. Names, dates of birth and case "
        "numbers are not shipped.",
        "It documents the faults of one tool. It is not a basis for building another one.",
    ),
)

COMPAS_PAPER = replace(
    COMPAS,
    name="compas-paper",
    title="COMPAS two-year recidivism, with the paper's label leak",
    inputs=(*(COMPAS.inputs or ()), "is_recid"),
    traps=(
        "LEAK: is_recid is among the inputs. It is 1 for every row with label 1 and for only 181 of the "
        "3,363 others. It is known only after the fact. With it, a plain network reaches F1 0.97; "
        "without it, 0.64. Use this dataset to reproduce the FairX paper's table, and compas for everything "
        "else.",
        *_TRAPS,
    ),
)
