"""The ready-made jobs: one small module each, with a function from DataFrame to DataFrame.

The pattern to copy: a function takes rows of the source and returns rows, starts nothing and knows no output, so that
it serves a stream, a batch, a notebook and a test alike. ``penstock.telemetry.catalog`` has an entry for each job;
``penstock.telemetry.running`` runs an entry, and so does ``penstock telemetry run NAME`` at a terminal. A job whose
rows depend on earlier batches is a fold (``folds``): (state, rows) to (state, events); the checkpoint has the state.
"""
