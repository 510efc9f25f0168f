"""Explanations of the numbers on a page, for readers without a background in statistics."""

from collections.abc import Sequence

from gcig.records.formatting import describe_suppression
from gcig.report.document import Block, Callout, Details

EXPLANATIONS = {
    "What is GCIG?": (
        "A model's reasons for a score are the amounts by which each column moved it, compared with a "
        "typical person. For every row, the reasons are computed once per group: compared with the typical "
        "member of that group who has the same outcome. Each set of reasons is then expressed as shares of "
        "its total.",
        "If the shares are the same whichever group the row is compared with, the row's disparity is 0: the "
        "reasons do not depend on the group. The more they differ, the larger the disparity; for two groups "
        "it is at most 2. GCIG is the mean disparity over all rows.",
        "GCIG measures reasons, not decisions. A model can make equal decisions for all groups and still "
        "judge them by different standards, and the other way round.",
    ),
    "What is the noise floor?": (
        "The typical member of a group is an average over the people in the data. Even if people were "
        "assigned to groups at random, two such averages would differ a little, and GCIG would not be 0.",
        "The noise floor is the GCIG that chance alone produces. It is found by shuffling the group labels "
        "among people with the same outcome and measuring GCIG again, many times. Only the part of GCIG "
        "above the noise floor says something about the model. The p-value is the share of shuffles with a "
        "GCIG at least as large as the measured one.",
    ),
    "What does the range after a number mean?": (
        "The rows are a sample. The range in brackets or below a number is its 95 % interval: if the audit "
        "were repeated on many samples of this size, about 95 of 100 such ranges would contain the true "
        "value. A wide range means that there are few rows, not that the model is unfair.",
    ),
    "What is the EO gap?": (
        "EO stands for equalized odds. The true positive rate is the share of people with the positive "
        "outcome that the model selects; the false positive rate is the share of people with the negative "
        "outcome that it selects. The EO gap is the sum of the differences between the groups in both rates. "
        "At 0, the model errs equally often for all groups.",
        "In small groups the two rates vary by chance. The noise floor of the EO gap is the gap that an "
        "exactly fair model with the same rates and group sizes shows on average.",
    ),
    "What is the four-fifths ratio?": (
        "The ratio divides the lowest share of favourable decisions in a group by the highest. Which "
        "decision is favourable for a person is stated at the top of an audit; otherwise it is the "
        "positive one. Employment guidelines in the United States (1978) treat a ratio below four fifths "
        "(0.8) as evidence of adverse impact. It is a rule of thumb, not a legal limit everywhere.",
    ),
    "What are precision and calibration?": (
        "Precision is the share of people with the positive outcome among those that the model selected. "
        "Calibration is the mean predicted probability minus the share of positive outcomes: above 0, the "
        "model overestimates a group; below 0, it underestimates it.",
    ),
    "What are AUC and the ROC curve?": (
        "AUC is the probability that the model ranks a random person with the positive outcome above a "
        "random person with the negative one: 0.5 is no better than chance, 1 is perfect. The ROC curve "
        "shows the true positive rate (up) against the false positive rate (across) at every possible "
        "threshold. The mark is the group's position at the model's own threshold.",
    ),
    "How are columns ranked?": (
        "The disparity of a row is the sum of one contribution per column. The share of a column is its part "
        "of the disparity over all rows; the shares add up to 100 %. The direction names the group under "
        "whose typical member the column speaks most for the favourable outcome.",
        "A column with a large share is one in which the reasons differ. It need not be the protected "
        "attribute itself: it may be a proxy for it.",
    ),
    "How is GCIG relative to members measured?": (
        "GCIG compares every row with the mean of each group, which is not a real person. A model can behave "
        "differently near such points, which alone can make GCIG low. So GCIG is measured again with real "
        "people as references: the reasons of a row are computed relative to many members of each group who "
        "have the same outcome, and averaged.",
        "The members are a sample, so the averages of two groups differ a little even if nothing else does. "
        "The noise of the members is that difference between two halves of one group. It has been removed "
        "from the number, whose range shows the uncertainty that remains.",
        "It is bad news if this number stays high while GCIG is low: the reasons then agree only "
        "relative to the means. A model that was trained to have a low GCIG deserves trust if both are low.",
    ),
    "How is the reference offset measured?": (
        "The reference of a group is meant to represent its members. The reference offset compares the "
        "model's score (logit) at the reference with the mean score of the members, in standard deviations "
        "of all scores, and takes the mean over outcomes and groups. 0 means that the references are scored "
        "like the people they represent.",
        "It guards against a shortcut: if a model scores the references differently from all real people, "
        "everyone gets the same dominant reason, and GCIG falls although no decision has changed. Plain "
        "networks on three public tables had an offset of 0.13 to 0.16; networks that had found the shortcut "
        "had 0.8 to 2.4.",
    ),
    "How is faithfulness measured?": (
        "The values of one column at a time are shuffled among the rows, and the mean change of the score is "
        "recorded: it shows what the model really depends on. Faithfulness is the rank correlation between "
        "this order of the columns and their order in the reasons: 1 if both agree, about 0 if they are "
        "unrelated.",
        "It guards against reasons that do not describe the model. Plain networks on two public tables had "
        "0.88 and 0.98; networks that were trained to have a low GCIG relative to the means alone had 0.30 "
        "and 0.45. With few columns the number is coarse.",
    ),
    "How is the effective number of columns measured?": (
        "A model that uses a single column gives everyone the same reason, which alone makes GCIG low. The "
        "effective number of columns is 1 if a single column decides, and the number of columns if all have "
        "the same weight. It is the exponential of the entropy of the columns' shares in the reasons.",
        "It is bad news if it is close to 1, or if training a fairer model has halved it.",
    ),
    "How is the attribute effect measured?": (
        "The protected attribute of a row is replaced by that of a row of another group; all other columns "
        "stay the same. The attribute effect is the share of decisions that change. If several attributes "
        "are crossed, each is replaced separately and all together, and a decision counts if any of these "
        "replacements changes it. It is undefined if the attribute is not an input of the model.",
        "It guards against equal error rates that are achieved with the protected attribute itself. It does "
        "not detect the use of proxies for the attribute.",
    ),
    "Which references are compared?": (
        "A reason is a comparison with somebody. GCIG compares a row with the mean of each group; other "
        "choices are as reasonable: a typical member, the most frequent values, real members, or one "
        "reference for all groups. Each gives another number.",
        "The numbers may differ; the conclusion should not. If two models are compared, the conclusion is "
        "which of them is fairer; for a single model it is whether its reasons depend on the group. A "
        "conclusion that changes with the reference says more about the reference than about the model.",
    ),
    "When is a change more than chance?": (
        "Every audit sees a sample of rows, so figures change a little from one audit to the next although "
        "nothing else does. The intervals of two audits say how much. A change counts as better or worse "
        "only if a difference as large would be unlikely (less than 5 in 100) if nothing had changed; the "
        "p-values are corrected for the number of figures that are compared.",
        "If both audits used the same rows, the test is cautious: it calls fewer changes real than there "
        "are.",
    ),
    "What is the Pareto front?": (
        "A model is on the Pareto front if no other model here is at least as good in every respect and "
        "better in one. The models on the front are the candidates; every other model is dominated by one of "
        "them.",
    ),
    "What is a suppressed group?": (
        "Rates of very few people reveal individuals and vary widely by chance. Groups, and combinations of "
        "outcome and group, with fewer rows than the publication threshold are suppressed: their rates are "
        "not shown, and gaps between groups leave them out.",
    ),
}


def explanations(*names: str) -> Sequence[Details]:
    """Return the explanations with these names; each opens on a click."""
    return [Details(name, EXPLANATIONS[name]) for name in names]


def suppression_note(cells: tuple[str, ...], min_cell: int) -> list[Block]:
    """Return a note that names the suppressed cells, if there are any."""
    note = describe_suppression(cells, min_cell)
    return [Callout("caution", note)] if note else []
