"""A small made-up table of loans, and the arguments that train on it in a moment."""

import numpy as np
import pandas as pd

ROLES = ["--target", "approved", "--positive", "yes", "--sensitive", "sex"]
QUICK = ["--epochs", "2", "--device", "cpu", "--quiet"]


def make_loans(n=240, seed=0):
    rng = np.random.default_rng(seed)
    sex = np.where(np.arange(n) % 2 == 0, "female", "male")
    income = np.round(rng.normal(30, 8, n) + 4 * (sex == "male"), 2)
    owner = rng.random(n) < 0.5
    job = rng.choice(["clerk", "farmer", "nurse", "07"], n)
    approved = np.where(income + 5 * owner + rng.normal(0, 4, n) > 34, "yes", "no")
    frame = pd.DataFrame(
        {
            "id": [f"L{i:04}" for i in range(n)],
            "income": income,
            "job": job,
            "owner": owner,
            "sex": sex,
            "race": rng.choice(["a", "b"], n),
            "approved": approved,
        }
    )
    frame.loc[5, "income"] = np.nan
    frame.loc[9, "job"] = None
    return frame
