"""The paper's experiments: what each of them runs, and the tables and figures made from its results.

Every experiment has one module of pure functions: ``settings`` returns what is run, ``tables`` and
``figures`` return what is shown of a frame of results. `reproduce` runs the experiments and stores their
results; `rendering` draws them.
"""
