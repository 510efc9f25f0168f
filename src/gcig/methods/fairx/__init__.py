"""FairX: the estimator, its training, and warnings about unreliable results."""
