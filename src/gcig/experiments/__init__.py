"""The paper's experiments: what each of them runs, and the tables and figures made from its results.

Every experiment has one module with pure functions: ``settings`` says what is run, ``tables`` and ``figures``
say what is shown of a frame of results. `reproduce` runs them and keeps the results, `rendering` draws them.
"""
