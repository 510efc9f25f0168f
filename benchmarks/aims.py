"""What FairX has to reach: aims, and whether the means over folds meet them."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.folds import UTILITY, mean

# Four splits of a one-page prototype of FairX: its figures, relative to means and to members, and what it
# costs in AUC, accuracy or R2. It was measured as `benchmarks.folds` measures.
PROTOTYPE: dict[str, dict[str, float]] = {
    table: dict(
        zip(
            (
                "gap_means",
                "gap_members",
                "varying_means",
                "varying_members",
                "gcig_means",
                "gcig_members",
                "cost",
            ),
            values,
            strict=True,
        )
    )
    for table, values in {
        "adult": (0.069, 0.096, 0.018, 0.018, 0.066, 0.101, 0.0041),
        "bank": (0.146, 0.141, 0.037, 0.038, 0.076, 0.084, 0.0044),
        "compas": (0.297, 0.253, 0.050, 0.044, 0.187, 0.169, -0.0015),
        "compas-paper": (0.008, 0.048, 0.006, 0.006, 0.049, 0.116, 0.0024),
        "german": (0.089, 0.090, 0.020, 0.020, 0.041, 0.045, -0.0003),
        "compas-risk": (0.269, 0.255, 0.043, 0.037, 0.182, 0.190, -0.0039),
        "adult-occupation": (0.485, 0.497, 0.065, 0.065, 0.371, 0.373, 0.0038),
        "adult-hours": (0.161, 0.229, 0.038, 0.041, 0.144, 0.187, 0.0072),
    }.items()
}
GAP_RATIO, GCIG_RATIO, COST_MARGIN = 1.1, 1.15, 0.002  # relative to the prototype
LARGEST_SIZE, LEAST_COLUMNS, LARGEST_F1_LOSS, TRUST_MARGIN = 1.25, 0.6, 0.015, 0.15  # to the plain network
LEAST_SHARE = 0.8  # of the ratio by which the gap relative to members falls, for Shapley values


@dataclass(frozen=True)
class Aim:
    """A figure of FairX, averaged over folds, and its limit."""

    what: str
    value: float
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the limit is kept; None if the figure is undefined."""
        if math.isnan(self.value) or math.isnan(self.limit):
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        mark = {True: "ok    ", False: "MISSED", None: "      "}[self.met]
        sign = ">=" if self.at_least else "<="
        return f"{mark} {self.what:44s} {self.value:8.4f} {sign} {self.limit:.4f}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**asdict(self), "met": self.met}


def judge(table: str, folds: list[dict[str, Any]]) -> list[Aim]:
    """Return the aims of a table."""
    task = folds[0]["task"]

    def fairx(figure: str) -> float:
        return mean(folds, "fairx", figure)

    def plain(figure: str) -> float:
        return mean(folds, "plain", figure)

    cost = plain(UTILITY[task]) - fairx(UTILITY[task])
    aims = []
    if (prototype := PROTOTYPE.get(table)) is not None:
        for name in ("gap_means", "gap_members", "varying_means", "varying_members"):
            aims.append(Aim(f"{name}, prototype x {GAP_RATIO}", fairx(name), GAP_RATIO * prototype[name]))
        for name in ("gcig_means", "gcig_members"):
            aims.append(Aim(f"{name}, prototype x {GCIG_RATIO}", fairx(name), GCIG_RATIO * prototype[name]))
        aims.append(
            Aim(f"loss of {UTILITY[task]}, prototype + {COST_MARGIN}", cost, prototype["cost"] + COST_MARGIN)
        )
    for part in ("gap", "common", "varying"):
        aims.append(Aim(f"{part}_means, plain", fairx(f"{part}_means"), plain(f"{part}_means")))
        # A part that is within the chance of permuted groups is none.
        limit = max(plain(f"{part}_members"), fairx(f"{part}_chance"))
        aims.append(Aim(f"{part}_members, plain or chance", fairx(f"{part}_members"), limit))
    if task != "number":
        aims.append(Aim("loss of macro F1", plain("macro_f1") - fairx("macro_f1"), LARGEST_F1_LOSS))
    return [
        *aims,
        Aim(
            f"reason_size, plain x {LARGEST_SIZE}", fairx("reason_size"), LARGEST_SIZE * plain("reason_size")
        ),
        Aim(
            f"effective_columns, plain x {LEAST_COLUMNS}",
            fairx("effective_columns"),
            LEAST_COLUMNS * plain("effective_columns"),
            at_least=True,
        ),
        Aim(
            f"reference_offset, plain + {TRUST_MARGIN}",
            fairx("reference_offset"),
            plain("reference_offset") + TRUST_MARGIN,
        ),
        Aim(
            f"faithfulness, plain - {TRUST_MARGIN}",
            fairx("faithfulness"),
            plain("faithfulness") - TRUST_MARGIN,
            at_least=True,
        ),
        Aim("attribute_effect, plain", fairx("attribute_effect"), plain("attribute_effect")),
    ]


def judge_unseen(folds: list[dict[str, Any]]) -> list[Aim]:
    """Return the aims of a table under explainers and references that training never saw."""

    def value(which: str, figure: str) -> float:
        return float(sum(fold[which]["unseen"][figure] for fold in folds) / len(folds))

    def fall(figure: str) -> float:
        """Return the plain network's figure relative to FairX's, or to chance if that is larger."""
        return value("plain", figure) / max(value("fairx", figure), value("fairx", f"{figure}_chance"))

    aims = []
    for part in ("gap", "varying"):
        least = LEAST_SHARE * fall(f"members_{part}")
        aims.append(
            Aim(f"fall of shapley_{part}, members x {LEAST_SHARE}", fall(f"shapley_{part}"), least, True)
        )
        for explainer in ("lime", "occlusion"):
            name = f"{explainer}_{part}"
            aims.append(Aim(f"{name}, plain", value("fairx", name), value("plain", name)))
    for name in ("medoid_gcig", "mode_gcig"):
        aims.append(Aim(f"{name}, plain", value("fairx", name), value("plain", name)))
    return aims
