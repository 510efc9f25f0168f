"""The mathematics of `gcig.core` and `gcig.losses` by hand, for speed; each function names its twin."""
