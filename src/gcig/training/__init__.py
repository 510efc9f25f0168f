"""The only epoch loop, and the seeds, threads and devices of training."""
