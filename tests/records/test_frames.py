import pandas as pd
import pytest

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
    assert found.to_frame("columns")["gcig_columns"].to_dict() == dict(found.gcig_columns)
    with pytest.raises(ValueError, match="part must be 'figures', 'groups' or 'columns', not 'rows'"):
        found.to_frame("rows")
