"""The paper's experiments: pure functions that return settings to run, and tables and figures of results.

`reproduce` runs the experiments and stores their results; `rendering` draws them.
"""
