"""What messages of the library advise in Python, said in the words of the shell."""

from __future__ import annotations

__all__ = ["SHELL_WORDS", "in_shell_words"]

SHELL_WORDS = {
    "Drop it (X.drop(columns=...)), or ignore this if it is meant to stay.": (
        "Leave it out with --drop, or ignore this if it is meant to stay."
    ),
    "decimal=',' (the comma starts the fraction) or decimal='.' (it groups thousands)": (
        "--decimal , (the comma starts the fraction) or --decimal . (it groups thousands)"
    ),
    "Say which is meant (decimal=',' or decimal='.')": "Say which is meant (--decimal , or --decimal .)",
    "if letters look wrong, say the encoding": "if letters look wrong, say --encoding",
    "' of X ": "' ",
    "Input X contains": "The table contains",
    "Input y contains": "The target contains",
    "Input sensitive_features contains": "The protected attribute contains",
    "Drop it, or group its values": "Leave it out with --drop, or group its values",
    "If it is an identifier drop it;": "If it is an identifier leave it out with --drop;",
    " (.fillna('unknown'))": "",
    " (pandas.cut)": "",
    "device must be 'auto'": "--device must be 'auto'",
    "Use device='auto'": "Use --device auto",
    "Pass sensitive_features=..., with groups of training": "Name it with --sensitive; training had",
    "or ask for fewer parts": "or ask for fewer folds",
    "Allow a larger max_auc_drop, more max_epochs, or a looser bound.": (
        "Allow more --epochs, or a looser bound."
    ),
    "a bound that can be met (max_gcig, max_eo_gap)": "a bound that can be met (--max-gcig, --max-eo-gap)",
    "merge groups, or give the training rows as the reference": "or merge groups",
    "y holds ": "The target holds ",
    "sensitive_features holds ": "The protected attribute holds ",
    "with trust_pickle also": "with --trust-pickle also",
    "set threshold='f1' or class_weight='balanced'": "set --threshold f1",
}


def in_shell_words(message: str) -> str:
    """The message with its advice as options of the command line.

    >>> in_shell_words("Use device='auto', which takes one where there is one.")
    'Use --device auto, which takes one where there is one.'
    """
    for python, shell in SHELL_WORDS.items():
        message = message.replace(python, shell)
    return message
