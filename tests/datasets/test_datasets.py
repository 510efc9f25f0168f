import csv
import gzip
import importlib.util
import io
import json
import re
from hashlib import sha256
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gcig
from gcig.datasets import registry
from gcig.datasets.dataset import DatasetCard
from gcig.datasets.spec import DatasetSpec, ProtectedAttribute

ROOT = Path(__file__).parents[2]


def _load_build_script():
    path = ROOT / "scripts" / "build_data.py"
    spec = importlib.util.spec_from_file_location("build_data", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


build_data = _load_build_script()


@pytest.fixture(autouse=True)
def own_registry(monkeypatch):
    """Forget the datasets that a test registered."""
    monkeypatch.setattr(registry._SPECS, "data", dict(registry._SPECS.data))
    monkeypatch.setattr(registry, "_LOADED", dict(registry._LOADED))


def people(n=12):
    return pd.DataFrame(
        {
            "income": np.arange(n) * 1000,
            "sex": ["female", "male"] * (n // 2),
            "age": np.arange(n) + 20,
            "paid": ["no"] * (n // 2) + ["yes"] * (n // 2),
        }
    )


def declare(frame=None, **changes):
    facts = {
        "name": "people",
        "load": lambda: people() if frame is None else frame,
        "target": "paid",
        "positive": "yes",
        "protected": (ProtectedAttribute("sex"),),
    }
    return DatasetSpec(**{**facts, **changes})


# The shipped datasets: counts that were published elsewhere ----------------------------------------------


@pytest.mark.parametrize(
    ("name", "attribute", "sizes", "positives"),
    [
        ("adult", "sex", {"Male": 30527, "Female": 14695}, 11208),
        (
            "adult",
            "race",
            {
                "White": 38903,
                "Black": 4228,
                "Asian-Pac-Islander": 1303,
                "Amer-Indian-Eskimo": 435,
                "Other": 353,
            },
            11208,
        ),
        ("german", "sex", {"male": 690, "female": 310}, 700),
        ("german", "age", {"over 25": 810, "25 or younger": 190}, 700),
        ("compas", "race", {"African-American": 3175, "not African-American": 2997}, 2809),
        ("compas", "sex", {"Male": 4997, "Female": 1175}, 2809),
        (
            "compas",
            "race_all",
            {
                "African-American": 3175,
                "Caucasian": 2103,
                "Hispanic": 509,
                "Other": 343,
                "Asian": 31,
                "Native American": 11,
            },
            2809,
        ),
        ("bank", "age", {"25 to 59": 42618, "under 25 or over 59": 2593}, 5289),
        ("bank", "marital", {"married": 27214, "not married": 17997}, 5289),
    ],
)
def test_group_sizes_and_positives(name, attribute, sizes, positives):
    data = gcig.load_dataset(name, attribute)
    assert data.sensitive_features.value_counts().to_dict() == sizes
    assert data.y.sum() == positives


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("compas-risk", {"Low": 3421, "Medium": 1607, "High": 1144}),
        (
            "adult-occupation",
            {
                "manual and transport": 14_832,
                "professional and managerial": 13_412,
                "clerical and sales": 10_948,
                "service": 6_030,
            },
        ),
    ],
)
def test_sizes_of_classes(name, classes):
    data = gcig.load_dataset(name)
    assert data.task == "classes"
    assert data.y.value_counts().to_dict() == classes


def test_hours_are_those_of_the_table():
    data, adult = gcig.load_dataset("adult-hours"), gcig.load_dataset("adult").X
    assert data.task == "number"
    assert data.y.equals(adult["hours-per-week"].astype(float))
    assert data.X.equals(adult.drop(columns=["hours-per-week", "fnlwgt"]))


@pytest.mark.parametrize(
    ("name", "table", "left_out"),
    [
        ("compas-risk", "compas", {"score_text", "decile_score", "v_decile_score"}),
        ("adult-occupation", "adult", {"occupation", "fnlwgt"}),
        ("adult-hours", "adult", {"hours-per-week", "fnlwgt"}),
    ],
)
def test_another_label_of_a_table_leaves_out_what_reveals_it(name, table, left_out):
    data, original = gcig.load_dataset(name), gcig.load_dataset(table)
    assert set(original.X) - set(data.X) == left_out
    assert not {"income", "two_year_recid"} & set(data.X)
    assert data.sensitive_features.equals(original.sensitive_features)


def test_numbers_are_numbers():
    german = gcig.load_dataset("german").X
    numbers = ["duration", "credit_amount", "installment_rate", "residence_since", "age"]
    numbers += ["existing_credits", "dependents"]
    assert german.select_dtypes("number").columns.tolist() == numbers
    assert gcig.load_dataset("adult").X.select_dtypes("number").shape[1] == 6
    assert gcig.load_dataset("bank").X.select_dtypes("number").shape[1] == 7
    assert gcig.load_dataset("compas").X.select_dtypes("number").shape[1] == 8


def test_german_codes_are_words_and_sex_follows_attribute_9():
    data = gcig.load_dataset("german")
    words = [str(word) for column in data.X.select_dtypes("category") for word in data.X[column].unique()]
    assert not [word for word in words if re.fullmatch(r"A\d+", word)]
    female = data.X["personal_status_sex"].astype(str).str.startswith("female")
    assert (data.sensitive_features == "female").equals(female)
    # First row of the raw file: A11 6 A34 A43 1169 A65 A75 4 A93 ...
    first = data.X.iloc[0]
    assert (first["checking_status"], first["duration"], first["credit_amount"]) == ("below 0 DM", 6, 1169)
    assert first["personal_status_sex"] == "male: single"


def test_constant_prediction_on_german_has_the_f1_that_the_card_warns_of():
    y = gcig.load_dataset("german").y
    f1 = 2 * y.sum() / (len(y) + y.sum())
    assert f"F1 {f1:.3f}" in str(gcig.load_dataset("german").card)


def test_only_compas_paper_has_the_leak_and_its_card_describes_it():
    honest, leaking = gcig.load_dataset("compas"), gcig.load_dataset("compas-paper")
    assert "is_recid" not in honest.X
    assert leaking.X.drop(columns="is_recid").equals(honest.X)
    leak, y = leaking.X["is_recid"], leaking.y
    assert (leak[y == 1] == 1).all()
    facts = f"1 for every row with label 1 and for only {leak[y == 0].sum()} of the {(y == 0).sum():,} others"
    assert facts in leaking.card.spec.traps[0]


@pytest.mark.parametrize(
    ("target", "task", "labels"),
    [
        (["a", "b", "c"] * 4, "classes", {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}),
        ([1, 2, 3] * 4, "classes", {"1": 1 / 3, "2": 1 / 3, "3": 1 / 3}),
        ([1, 2, 3] * 4, "number", {"mean": 2.0}),
    ],
)
def test_a_registered_dataset_of_another_task(target, task, labels):
    gcig.register_dataset(declare(people().assign(paid=target), task=task))
    data = gcig.load_dataset("people")
    assert data.task == task
    assert data.y.tolist() == (list(map(float, target)) if task == "number" else list(map(str, target)))
    assert data.card.labels == pytest.approx(labels)
    assert data.card.to_dict()["positive_means"] == ""
    assert "mean 2.0" in str(data.card) or "33.3%" in str(data.card)


@pytest.mark.parametrize(
    ("target", "task", "message"),
    [
        (["no", "yes"] * 6, "classes", "must have more than two; of two, set `positive`"),
        (["1", "2", "3"] * 4, "number", "must have finite numbers"),
        ([1.0, 2.0, np.inf] * 4, "number", "must have finite numbers"),
        ([1, 2] * 6, "number", "more than two"),
        ([1, 2, None] * 4, "number", "4 of 12 rows of dataset 'people' have no target"),
    ],
)
def test_a_target_that_does_not_fit_the_task(target, task, message):
    gcig.register_dataset(declare(people().assign(paid=target), task=task))
    with pytest.raises(ValueError, match=message):
        gcig.load_dataset("people")


# Asking for the wrong thing -------------------------------------------------------------------------------


def test_unknown_name_gets_a_suggestion():
    with pytest.raises(
        gcig.InputError,
        match=r"name 'adlt' is not a registered dataset\. Did you mean 'adult'\? Available: adult,",
    ):
        gcig.load_dataset("adlt")


@pytest.mark.parametrize("sensitive", ["gender", ["sex", "gender"]])
def test_an_unknown_attribute_gets_the_list_of_known_ones(sensitive):
    with pytest.raises(
        gcig.InputError,
        match=r"sensitive 'gender' is not a protected attribute of dataset 'german'\. Available: sex, age",
    ):
        gcig.load_dataset("german", sensitive)


@pytest.mark.parametrize("sensitive", [[], ["sex", "sex"]])
def test_attributes_are_named_once(sensitive):
    with pytest.raises(gcig.InputError, match=r"name each attribute once, .*\. Available: sex, age"):
        gcig.load_dataset("german", sensitive)


# Outside datasets -----------------------------------------------------------------------------------------


def test_a_registered_dataset_loads_like_a_shipped_one():
    gcig.register_dataset(declare())
    data = gcig.load_dataset("people", include_sensitive=False)
    assert gcig.list_datasets()[-1] == "people"
    assert data.X.columns.tolist() == ["income", "age"]
    assert data.y.tolist() == [0] * 6 + [1] * 6
    assert data.sensitive_features.tolist() == ["female", "male"] * 6
    assert data.card.spec.title == "people"
    assert "paid is yes" in str(data.card)


def test_a_name_is_taken_once_unless_overwritten():
    gcig.register_dataset(declare())
    assert gcig.load_dataset("people").X.shape == (12, 3)
    with pytest.raises(ValueError, match=r"'people' is already registered.*overwrite=True"):
        gcig.register_dataset(declare())
    gcig.register_dataset(declare(people(20)), overwrite=True)
    assert gcig.load_dataset("people").X.shape == (20, 3)


def test_register_takes_a_spec_only():
    with pytest.raises(TypeError, match="spec must be a DatasetSpec, got str"):
        gcig.register_dataset("people")


def test_the_loader_runs_once_and_its_own_table_is_left_alone():
    calls, frame = [], people()
    gcig.register_dataset(declare(load=lambda: calls.append(1) or frame))
    gcig.load_dataset("people")
    frame["income"] = -1
    assert gcig.load_dataset("people").X["income"].max() == 11_000
    assert calls == [1]


def test_groups_may_be_an_array_and_need_not_be_text():
    young = ProtectedAttribute("young", columns=("age",), groups=lambda frame: frame["age"].to_numpy() < 25)
    gcig.register_dataset(declare(protected=(young,)))
    assert gcig.load_dataset("people").sensitive_features.tolist() == ["True"] * 5 + ["False"] * 7


def test_groups_cannot_change_the_table():
    def meddle(frame):
        frame["new"] = 1
        return frame["sex"]

    gcig.register_dataset(declare(protected=(ProtectedAttribute("sex", groups=meddle),)))
    gcig.load_dataset("people")
    assert "new" not in gcig.load_dataset("people").X


def test_an_attribute_does_not_have_to_be_an_input():
    gcig.register_dataset(declare(inputs=("income",)))
    data = gcig.load_dataset("people", include_sensitive=False)
    assert data.X.columns.tolist() == ["income"]
    assert data.sensitive_features.nunique() == 2


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        ([1, 2], "returned list. It must return a pandas DataFrame"),
        (people().drop(columns=["sex", "paid"]), r"no column \['paid', 'sex'\]\. It has \['income', 'age'\]"),
        (people().set_axis(["a", "a", "sex", "paid"], axis=1), r"occur twice: \['a'\]"),
        (people().rename(columns={"income": 7}), r"not text: \[7\]"),
        (people(0), "has 0 values in 0 rows"),
        (people().assign(paid="yes"), "has 1 values in 12 rows"),
        (people().assign(paid=[0, 1] * 6), r"0 rows equal positive='yes' \(str\)"),
        (people().assign(paid=["yes", "no", "late"] * 4), "has 3 values"),
        (
            people().assign(paid=["yes", "no", None] * 4),
            "4 of 12 rows of dataset 'people' have no target 'paid'",
        ),
        (people().assign(sex=["f", None] * 6), "'sex': 6 of 12 rows have no group"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_with_the_reason(frame, message):
    gcig.register_dataset(declare(frame))
    with pytest.raises(ValueError, match=message):
        gcig.load_dataset("people")


def test_declared_rows_are_counted():
    gcig.register_dataset(declare(rows=13))
    with pytest.raises(ValueError, match="returned 12 rows, but 13 are declared"):
        gcig.load_dataset("people")


def test_dropping_every_input_is_refused():
    gcig.register_dataset(declare(inputs=("sex",)))
    with pytest.raises(
        gcig.InputError,
        match=r"include_sensitive must be True: without \['sex'\], dataset 'people' has no inputs",
    ):
        gcig.load_dataset("people", include_sensitive=False)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "../people"}, "cannot be part of a file name"),
        ({"name": "People"}, "lower-case"),
        ({"protected": ()}, "at least one ProtectedAttribute"),
        ({"protected": (ProtectedAttribute("sex"), ProtectedAttribute("sex"))}, "each with a unique name"),
        ({"task": "ranking"}, "task of dataset 'people' is 'ranking': use one of binary, classes, number"),
        ({"default": "age"}, "'age' is not a protected attribute of dataset 'people'. Available: sex"),
        ({"inputs": ("income", "paid")}, "include its target 'paid'"),
    ],
)
def test_a_declaration_is_checked_on_construction(changes, message):
    with pytest.raises(ValueError, match=message):
        declare(**changes)


def test_several_columns_need_a_function():
    with pytest.raises(ValueError, match="has 2 columns: pass a function `groups`"):
        ProtectedAttribute("both", columns=("sex", "age"))


# The card -------------------------------------------------------------------------------------------------


def test_base_rate_of_a_small_group_is_not_published():
    frame = people(24).assign(sex=["female"] * 14 + ["male"] * 10)
    card = DatasetCard.from_frame(declare(), frame)
    labels = {facts.group: facts.labels for facts in card.groups["sex"]}
    assert labels["female"] == pytest.approx({"base_rate": 2 / 14})
    assert labels["male"] is None
    assert "fewer than 11 rows" in str(card)
    assert "fewer than 11 rows" in card._repr_html_()


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_nothing_reaches_the_html_unescaped(words):
    hostile = f"<script>{words}</script>"
    frame = people().assign(sex=[hostile, "male"] * 6)
    spec = declare(title=hostile, traps=(hostile,), protected=(ProtectedAttribute("sex", hostile),))
    html = DatasetCard.from_frame(spec, frame)._repr_html_()
    assert "<script>" not in html
    assert html.count("&lt;script&gt;") == 4


# The shipped files and the script that builds them --------------------------------------------------------


def test_manifest_matches_the_shipped_files():
    folder = ROOT / "src" / "gcig" / "datasets" / "files"
    manifest = registry.manifest()
    assert {path.name for path in folder.iterdir()} == {*manifest, registry.MANIFEST}
    for file, facts in manifest.items():
        content = (folder / file).read_bytes()
        assert sha256(content).hexdigest() == facts["sha256"]
        table = gzip.decompress(content)
        assert sha256(table).hexdigest() == facts["table_sha256"]
        assert table.count(b"\n") == facts["rows"] + 1


def test_a_damaged_file_is_not_read(monkeypatch):
    facts = {**registry.manifest(), "german.csv.gz": {"sha256": "0" * 64}}
    monkeypatch.setattr(registry, "manifest", lambda: facts)
    with pytest.raises(ValueError, match=r"german\.csv\.gz is damaged.*Reinstall gcig"):
        registry.read_shipped("german")


@pytest.mark.parametrize("name", ["adult", "german", "compas", "bank"])
def test_writing_a_shipped_table_again_gives_the_same_table(name):
    table = gzip.decompress(registry.shipped_bytes(name))
    header, *rows = csv.reader(io.StringIO(table.decode("utf-8"), newline=""))
    assert build_data.table_to_csv(build_data.Table(header, rows)) == table
    assert header == build_data.columns_of("compas-paper" if name == "compas" else name)


def test_compressed_bytes_depend_on_the_table_alone(monkeypatch):
    packed = build_data.compress(b"a,b\n1,2\n")
    monkeypatch.setattr("time.time", lambda: 1e9)
    assert build_data.compress(b"a,b\n1,2\n") == packed
    assert packed[4:8] == bytes(4), "the time in the header"
    assert packed[3] == 0, "no name in the header"


def test_adult_drops_the_comment_the_dots_and_incomplete_rows():
    row = "39, State-gov, 77516, Bachelors, 13, Divorced, Sales, Unmarried, White, Male, 0, 0, 40"
    data = f"{row}, Cuba, <=50K\n{row}, ?, <=50K\n\n".encode()
    test = f"|1x3 Cross validator\n{row}, Cuba, >50K.\n".encode()
    table = build_data.adult_table(data, test)
    assert [cells[-1] for cells in table.rows] == ["<=50K", ">50K"]
    assert [len(cells) for cells in table.rows] == [len(table.header)] * 2 == [15, 15]


def test_bank_halves_make_the_original_file():
    def half(*lines):
        return gzip.compress("\n".join([",age,job,balance,deposit", *lines, ""]).encode())

    whole = build_data.bank_full([half("2,30,admin.,-5,no"), half("0,41,unknown,7,yes", "1,22,student,0,no")])
    assert whole == (
        b'"age";"job";"balance";"y"\n41;"unknown";7;"yes"\n22;"student";0;"no"\n30;"admin.";-5;"no"\n'
    )


@pytest.mark.parametrize(
    ("changes", "kept"),
    [
        ({}, True),
        ({"days_b_screening_arrest": "-30"}, True),
        ({"days_b_screening_arrest": "31"}, False),
        ({"days_b_screening_arrest": ""}, False),
        ({"is_recid": "-1"}, False),
        ({"c_charge_degree": "O"}, False),
        ({"score_text": "N/A"}, False),
    ],
)
def test_propublica_filter(changes, kept):
    row = {"days_b_screening_arrest": "0", "is_recid": "1", "c_charge_degree": "F", "score_text": "Low"}
    assert build_data.passes_filter({**row, **changes}) is kept


def test_compas_drops_columns_that_identify_a_person():
    columns = build_data.columns_of("compas-paper")
    header = ["name", "dob", "c_case_number", *columns, "priors_count"]
    values = dict.fromkeys(header, "0") | {"c_charge_degree": "F", "score_text": "Low", "name": "someone"}
    raw = "\n".join([",".join(header), ",".join(values[column] for column in header)]).encode()
    table = build_data.compas_table(raw)
    assert table.header == columns
    assert len(table.rows) == 1
    assert "someone" not in table.rows[0]


def test_compas_columns_that_occur_twice_have_to_agree():
    columns = build_data.columns_of("compas-paper")
    raw = "\n".join([",".join([*columns, "priors_count"]), ",".join(["0"] * len(columns) + ["1"])]).encode()
    with pytest.raises(SystemExit, match="the two columns priors_count differ"):
        build_data.compas_table(raw)


def test_a_raw_file_with_another_hash_is_refused():
    declared = build_data.declared_hashes()
    assert set(declared) == set(build_data.SOURCES)
    with pytest.raises(SystemExit, match=r"adult\.data: sha256 is .* but 5b00264637.* is declared"):
        build_data.check_hashes(dict.fromkeys(declared, b"other"), declared)
    with pytest.raises(SystemExit, match="raw files"):
        build_data.check_hashes({}, declared)


def test_check_finds_a_changed_file_and_passes_the_same(tmp_path):
    content = build_data.compress(b"a\n1\n")
    facts = {"sha256": build_data.sha(content), "table_sha256": build_data.sha(b"a\n1\n"), "rows": 1}
    (tmp_path / registry.MANIFEST).write_text(json.dumps({"t.csv.gz": facts}))
    (tmp_path / "t.csv.gz").write_bytes(content)
    built = {"t.csv.gz": content, registry.MANIFEST: b"{}"}
    assert build_data.differences(built, tmp_path) == []
    other = {**built, "t.csv.gz": build_data.compress(b"a\n2\n")}
    assert build_data.differences(other, tmp_path) == ["t.csv.gz: differs from the raw files"]
    (tmp_path / "t.csv.gz").write_bytes(other["t.csv.gz"])
    assert build_data.differences(built, tmp_path) == [
        "t.csv.gz: differs from the manifest",
        "t.csv.gz: differs from the raw files",
    ]
    assert build_data.differences({registry.MANIFEST: b""}, tmp_path)


# The how-to -----------------------------------------------------------------------------------------------


def _blocks(page):
    """(language, code) of every code block of a reStructuredText page."""
    pattern = r"^\.\. code-block:: (\w+)\n(?:   :.*\n)*\n((?:   .*\n|\n)+)"
    for language, body in re.findall(pattern, page, flags=re.MULTILINE):
        yield language, re.sub("^   ", "", body, flags=re.MULTILINE).strip() + "\n"


def test_the_how_to_runs_as_printed(tmp_path, monkeypatch, capsys):
    page = (ROOT / "docs" / "howto" / "new_dataset.rst").read_text("utf-8")
    blocks = list(_blocks(page))
    assert [language for language, _ in blocks] == ["text", "python", "python", "toml"]
    (tmp_path / "loans.csv").write_text(blocks[0][1])
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for language, code in blocks:
        if language == "python":
            exec(compile(code, "new_dataset.rst", "exec"), namespace)
    printed = capsys.readouterr().out
    assert "6 rows, 4 columns" in printed
    assert "male (3), female (3)" in printed or "female (3), male (3)" in printed
    assert namespace["loans"].sensitive_features.tolist()[2] == "over 40"
