"""Trains the model of this bundle on made-up customers and writes all of the bundle but this script.

    pip install numpy pandas scikit-learn skl2onnx pyyaml
    python train.py [FOLDER]

Only the classifier becomes ONNX. Everything before and behind it is written as steps, with the numbers that the fitted transformers
hold; the golden cases are answers of the fitted scikit-learn Pipeline, preparation included.
"""

import datetime
import hashlib
import pathlib
import sys

import numpy as np
import pandas as pd
from skl2onnx import to_onnx
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import (FunctionTransformer, KBinsDiscretizer, MinMaxScaler, OneHotEncoder, OrdinalEncoder,
                                   RobustScaler, StandardScaler)

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import golden  # noqa: E402

NAMES = ["stays", "leaves"]
THRESHOLD = 0.35
CONTRACTS = ["monthly", "one year", "two years"]
REGIONS = ["north", "south", "east", "west", "island", "abroad"]
COLUMNS = ["months", "charge", "usage", "age", "plan", "region", "contract", "signup", "support"]


def customers(n, seed):
    rng = np.random.default_rng(seed)
    first = datetime.date(2019, 1, 1)
    table = pd.DataFrame({
        "months": rng.integers(0, 73, n),
        "charge": np.round(rng.gamma(4, 15, n), 2),
        "usage": np.round(rng.lognormal(3, 1.2, n), 1),
        "age": rng.integers(18, 90, n).astype(float),
        "plan": rng.choice(["basic", "family", "NO-frills", "Größe L"], n, p=[0.5, 0.3, 0.15, 0.05]),
        "region": rng.choice(REGIONS, n, p=[0.35, 0.3, 0.2, 0.13, 0.015, 0.005]),
        "contract": rng.choice(CONTRACTS, n),
        "signup": [first + datetime.timedelta(days=int(d)) for d in rng.integers(0, 2000, n)],
        "support": rng.random(n) < 0.3,
    })
    weekend = np.array([d.weekday() >= 5 for d in table["signup"]])
    score = (1 - 0.05 * table["months"] + 0.025 * table["charge"] - 0.2 * np.log1p(table["usage"]) + 0.8 * (table["plan"] == "family") -
             0.9 * (table["contract"] != "monthly") + 0.7 * table["support"] + 0.6 * weekend)
    leaves = rng.random(n) < 1 / (1 + np.exp(-score))
    table.loc[rng.random(n) < 0.1, "charge"] = np.nan
    table.loc[rng.random(n) < 0.05, "age"] = np.nan
    return table, leaves.astype(int)


def date_numbers(frame):
    dates = frame.iloc[:, 0]
    return np.array([[d.month, d.weekday(), d.isocalendar().week] for d in dates], dtype=np.float64)


def new_pipeline():
    prepare = ColumnTransformer([
        ("months", MinMaxScaler(clip=True), ["months"]),
        ("charge", make_pipeline(SimpleImputer(strategy="median"), StandardScaler()), ["charge"]),
        ("absent", FunctionTransformer(lambda f: f.isna().to_numpy(np.float64)), ["charge"]),
        ("usage", make_pipeline(FunctionTransformer(np.log1p), RobustScaler()), ["usage"]),
        ("age", make_pipeline(SimpleImputer(strategy="mean"),
                              KBinsDiscretizer(5, encode="ordinal", strategy="quantile", quantile_method="averaged_inverted_cdf")), ["age"]),
        ("plan", OneHotEncoder(handle_unknown="ignore", sparse_output=False), ["plan"]),
        ("region", OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=0.05, sparse_output=False), ["region"]),
        ("contract", OrdinalEncoder(categories=[CONTRACTS], handle_unknown="use_encoded_value", unknown_value=-1), ["contract"]),
        ("signup", make_pipeline(FunctionTransformer(date_numbers), StandardScaler()), ["signup"]),
        ("support", FunctionTransformer(lambda f: f.to_numpy(np.float64)), ["support"]),
    ])
    model = GradientBoostingClassifier(n_estimators=40, max_depth=3, random_state=7)
    return Pipeline([("prepare", prepare), ("model", FixedThresholdClassifier(model, threshold=THRESHOLD, response_method="predict_proba"))])


def numbers(values):
    return [float(v) for v in values]


def steps(prepare):
    """The fitted ColumnTransformer as steps, in its own order."""
    t = prepare.named_transformers_
    months, charge, usage, age, signup = t["months"], t["charge"], t["usage"], t["age"], t["signup"]
    region = t["region"]
    return [
        {"min_max": {"field": "months", "min": numbers(months.data_min_), "max": numbers(months.data_max_), "clip": True}},
        {"missing_indicator": {"field": "charge", "into": "absent"}},
        {"impute": {"field": "charge", "value": float(charge[0].statistics_[0])}},
        {"standardize": {"field": "charge", "mean": numbers(charge[1].mean_), "std": numbers(charge[1].scale_)}},
        {"log1p": {"field": "usage"}},
        {"robust": {"field": "usage", "center": numbers(usage[1].center_), "scale": numbers(usage[1].scale_)}},
        {"impute": {"field": "age", "value": float(age[0].statistics_[0])}},
        {"bucketize": {"field": "age", "boundaries": numbers(age[1].bin_edges_[0][1:-1]), "closed": "left"}},
        {"one_hot": {"field": "plan", "categories": list(map(str, t["plan"].categories_[0])), "unknown": "ignore"}},
        {"one_hot": {"field": "region", "categories": list(map(str, region.categories_[0])), "unknown": "infrequent",
                     "infrequent": list(map(str, region.infrequent_categories_[0]))}},
        {"ordinal": {"field": "contract", "categories": CONTRACTS, "unknown": "value", "unknown_value": -1}},
        {"date_parts": {"field": "signup", "into": "dates", "parts": ["month", "weekday", "week"], "dtype": "float64"}},
        {"standardize": {"field": "dates", "mean": numbers(signup[1].mean_), "std": numbers(signup[1].scale_)}},
        {"concat": {"fields": ["months", "charge", "absent", "usage", "age", "plan", "region", "contract", "dates", "support"],
                    "into": "X", "dtype": "float32"}},
    ]


def flow(value):
    """A value in YAML's flow form."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else repr(value)


MANIFEST = """churon: 1
name: churn
version: "1"
task: classification
description: >-
  Will a customer leave within three months? Gradient boosting behind scikit-learn's preparation, which is written here as steps.
owner: Churon maintainers
intended_use: >-
  An example of a tabular pipeline, on customers that a script made up. In its place: ordering calls to customers.
limits: Made-up data. Not for prices, and for nobody real.
licence: MIT
model: {file: model.onnx, sha256: SHA256}
sources:
  - name: train.py beside this file, which writes the model, this file and the golden cases

inputs:
  months: {type: int, min: 0, unit: months, description: How long they have been a customer}
  charge: {type: double, min: 0, required: false, unit: EUR, description: Last month's bill}
  usage: {type: double, min: 0, unit: GB}
  age: {type: double, min: 0, max: 150, required: false, unit: years}
  plan: {type: string, max_length: 100}
  region: {type: string, max_length: 100}
  contract: {type: string, max_length: 100}
  signup: {type: date}
  support: {type: bool, description: Whether they called for help last month}

pre:
STEPS
post:
  - label: {from: probabilities, names: [stays, leaves]}
  - threshold: {label: leaves, at: THRESHOLD, into: label}
  - pick: {field: probabilities, at: 1, into: risk}

outputs:
  label: {description: What to expect}
  risk: {description: Probability that the customer leaves}

golden: golden.jsonl
tolerance:
  risk: {abs: 1.0e-6}
"""


def record(row):
    """A row of the table as what Churon is given; what is missing is left out."""
    out = {}
    for name in COLUMNS:
        value = row[name]
        if isinstance(value, datetime.date):
            out[name] = value.isoformat()
        elif not (isinstance(value, float) and np.isnan(value)):
            out[name] = value.item() if isinstance(value, np.generic) else value
    out["months"] = int(out["months"])
    return out


def answers(pipeline, table):
    risk = pipeline.named_steps["model"].estimator_.predict_proba(pipeline.named_steps["prepare"].transform(table))[:, 1]
    return [{"label": NAMES[label], "risk": float(r)} for label, r in zip(pipeline.predict(table), risk)]


def trace(pipeline, table):
    """Of the one row: what the transformers make."""
    prepare = pipeline.named_steps["prepare"]
    t = prepare.named_transformers_
    part = {name: np.asarray(t[name].transform(table[cols]))[0] for name, _, cols in prepare.transformers_ if name != "remainder"}
    [[stays, leaves]] = pipeline.named_steps["model"].estimator_.predict_proba(prepare.transform(table)).tolist()
    [label] = pipeline.predict(table)
    scores = [{"label": "stays", "score": stays}, {"label": "leaves", "score": leaves}]
    return {"min_max months": part["months"][0], "missing_indicator absent": bool(part["absent"][0]), "standardize charge": part["charge"][0],
            "robust usage": part["usage"][0], "bucketize age": int(part["age"][0]), "one_hot plan": part["plan"], "one_hot region": part["region"],
            "ordinal contract": int(part["contract"][0]), "standardize dates": part["signup"],
            "concat X": prepare.transform(table)[0].astype(np.float32),
            "label label": {"label": NAMES[leaves > stays], "scores": scores}, "threshold label": NAMES[label], "pick risk": leaves}


def hard_cases(table):
    """Rows that a service sees and training did not."""
    row = table.iloc[0]
    return {"unknown plan": {**row, "plan": "gold"}, "unknown region": {**row, "region": "moon"}, "unknown contract": {**row, "contract": "ten years"},
            "rare region": {**row, "region": "island"}, "nothing known": {**row, "charge": np.nan, "age": np.nan},
            "outside of training": {**row, "months": 400, "age": 120.0, "usage": 1e9, "charge": 0.0},
            "leap day": {**row, "signup": datetime.date(2024, 2, 29)}, "last week of the year": {**row, "signup": datetime.date(2021, 1, 3)},
            "an edge of a bin": {**row, "age": 46.0}}


def frame(rows):
    return pd.DataFrame(rows, columns=COLUMNS)


def train():
    table, leaves = customers(3000, 7)
    return new_pipeline().fit(table, leaves), table


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    folder.mkdir(parents=True, exist_ok=True)
    pipeline, table = train()
    prepare = pipeline.named_steps["prepare"]
    X = prepare.transform(table[:1]).astype(np.float32)
    onnx = to_onnx(pipeline.named_steps["model"].estimator_, X, options={"zipmap": False}).SerializeToString()
    (folder / "model.onnx").write_bytes(onnx)
    lines = "\n".join(f"  - {name}: {flow(keys)}" for step in steps(prepare) for name, keys in step.items())
    text = MANIFEST.replace("STEPS", lines).replace("THRESHOLD", repr(THRESHOLD)).replace("SHA256", hashlib.sha256(onnx).hexdigest())
    (folder / "bundle.yaml").write_text(text)

    rows = [dict(table.iloc[i]) for i in range(12)]
    named = {f"customer {i}": row for i, row in enumerate(rows)} | hard_cases(table)
    cases = [{"name": name, "in": record(row), "out": out}
             for (name, row), out in zip(named.items(), answers(pipeline, frame(named.values())))]
    for case in cases:
        if case["name"] in ("customer 0", "customer 1", "unknown region", "nothing known"):
            case["trace"] = trace(pipeline, frame([named[case["name"]]]))
    cases.append({"name": "a text for a number", "in": {**record(rows[0]), "months": "3"}, "error": "months"})
    golden.write(folder, cases)


if __name__ == "__main__":
    main()
