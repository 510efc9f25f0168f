"""Cost and quality, measured as ratios within one run: see `benchmarks.__main__` and `benchmarks.quality`."""
