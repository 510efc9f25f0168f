"""The paper's experiments, reproduced with gcig: `python -m reproduction --out run/`.

`experiments` says what is run, `run` runs it and writes the results, `results` reads them. `tables`,
`correlation`, `claims` and `figures` show them next to the numbers of `paper`, and `pages` publishes them.
"""
