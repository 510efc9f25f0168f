"""FairX: the estimator, its training, and what is watched meanwhile."""
