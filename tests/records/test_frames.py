import json
import math
from dataclasses import replace

import pandas as pd
import pytest

from gcig.auditing.result import AuditResult
from support.audit_records import example
from support.fold_results import evaluation


def test_an_evaluation_is_a_row_of_a_results_table():
    found = evaluation()
    frame = found.to_frame()
    assert frame.shape == (1, len(found.scalars()))
    assert frame.loc[0, "auc"] == found.auc
    assert pd.concat([frame, evaluation(0.8).to_frame()])["auc"].tolist() == [found.auc, 0.8]
    groups = found.to_frame("groups")
    assert groups.index.tolist() == [each.group for each in found.groups]
    assert groups["tpr"].tolist() == pytest.approx([each.tpr for each in found.groups], nan_ok=True)
    assert found.to_frame("columns")["contribution"].to_dict() == dict(found.gcig_columns)
    with pytest.raises(ValueError, match="part must be 'figures', 'groups' or 'columns', not 'rows'"):
        found.to_frame("rows")


def test_a_table_without_rows_is_empty():
    found = example()
    frame = AuditResult(replace(found, procedural=replace(found.procedural, columns=()))).to_frame("columns")
    assert (len(frame), frame.index.name) == (0, "column")


def test_an_audit_is_plain_values_and_tables():
    found = AuditResult(example())
    assert found.to_dict() == json.loads(found.to_json())
    record = found.record
    (row,) = found.to_frame().to_dict("records")
    assert row["model"] == record.subject.model_name
    gcig = record.procedural.gcig
    assert (row["gcig"], row["gcig_low"], row["gcig_high"]) == (gcig.value, gcig.low, gcig.high)
    assert row["eo_gap"] == record.outcome.eo_gap.value
    groups = found.to_frame("groups")
    assert groups.index.tolist() == [each.group for each in record.groups]
    assert groups["tpr_low"].iloc[0] == pytest.approx(record.groups[0].tpr.low)
    columns = found.to_frame("columns")
    assert columns["share"].sum() == pytest.approx(sum(each.share for each in record.procedural.columns))
    assert set(record.procedural.columns[0].profile) <= set(columns.columns)
    assert not any(math.isinf(value) for value in columns.select_dtypes("number").to_numpy().ravel())
