"""FairX: the estimator, its training, and the guards that watch it."""
