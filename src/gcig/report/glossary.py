"""What each number means, for readers who do not compute."""

from collections.abc import Sequence

from gcig.report.blocks import Details, Paragraph

__all__ = ["EXPLANATIONS", "explained"]

EXPLANATIONS = {
    "What is GCIG?": (
        "A model gives reasons for a score: how much each column moved it, compared with a typical person. "
        "For every row the reasons are worked out several times: compared with the typical member of each "
        "group who has the same outcome. Each set of reasons is then expressed as shares of the whole.",
        "If the shares are the same whichever group the row is compared with, the row's disparity is 0: the "
        "reasons do not depend on the group. The more they differ, the larger it is; the largest possible "
        "value for two groups is 2. GCIG is the average disparity over all rows.",
        "GCIG is about reasons, not about decisions. A model can treat groups alike in its decisions and "
        "still judge them by different standards, and the other way round.",
    ),
    "What is the noise floor?": (
        "The typical member of a group is an average over the people at hand. Even if the groups had been "
        "drawn by lot, two such averages would differ a little, and GCIG would not be exactly 0.",
        "The noise floor is what chance alone gives: the group labels are shuffled among people with the "
        "same outcome, GCIG is measured again, and this is repeated many times. Only the excess of GCIG "
        "over the noise floor speaks of the model. The p-value is the share of shuffles that gave a GCIG "
        "as large as the measured one.",
    ),
    "What does the range behind a number mean?": (
        "The rows at hand are a sample. The range in brackets or below a number is its 95 % interval: if "
        "the audit were repeated on many samples of this size, about 95 of 100 such ranges would hold the "
        "true value. A wide range means that there are few rows, not that the model is unfair.",
    ),
    "What is the EO gap?": (
        "EO stands for equalized odds. The true positive rate is the share of people with the positive "
        "outcome whom the model gets right; the false positive rate is the share of people with the "
        "negative outcome whom it gets wrong. The EO gap adds up how far the groups are apart in both. 0 "
        "means that the model errs equally often for everyone.",
        "In small groups the two rates vary by chance. The noise floor of the EO gap is what an exactly "
        "fair model with the same rates and as few rows would show on average.",
    ),
    "What is the four-fifths ratio?": (
        "The selection rate is the share of a group that the model decides in favour of. The ratio divides "
        "the lowest selection rate by the highest. Guidelines on employment in the United States (1978) "
        "treat a ratio under four fifths (0.8) as evidence of adverse impact. It is a rule of thumb, not "
        "a limit in law everywhere.",
    ),
    "What are precision and calibration?": (
        "Precision is the share of people with the positive outcome among those whom the model selected. "
        "Calibration is the mean probability that the model promised less the share that came true: above "
        "0, the model promises a group more than came true; below 0, less.",
    ),
    "What are AUC and the ROC curve?": (
        "AUC is the chance that the model ranks a random person with the positive outcome above a random "
        "person with the negative one: 0.5 is a coin, 1 is perfect. The ROC curve shows, for every possible "
        "threshold, how many are found rightly (up) against how many wrongly (across). The mark is where "
        "the model's own threshold puts the group.",
    ),
    "How are columns ranked?": (
        "The disparity of a row is made of one part per column. The share of a column is its part of the "
        "disparity over all rows; the shares add up to 100 %. The direction names the group whose typical "
        "member, taken as the comparison, lets this column speak most for the positive outcome.",
        "A column with a large share is where the reasons differ. It need not be the protected attribute "
        "itself: it may stand for it.",
    ),
    "Why is the effective number of columns shown?": (
        "A model that rests on a single column gives the same reason to everyone and has a low GCIG for "
        "that alone. The effective number of columns says on how many columns the reasons rest: 1 where a "
        "single one decides, and as many as there are where all weigh the same.",
    ),
    "What is the Pareto front?": (
        "A model is on the front when no other model here is at least as good in every respect and better "
        "in one. The models on the front are the choices; every other one is beaten by one of them.",
    ),
}


def explained(*names: str) -> Sequence[Details]:
    """The explanations of these names, each of which opens on demand."""
    return [Details(name, [Paragraph(text) for text in EXPLANATIONS[name]]) for name in names]
