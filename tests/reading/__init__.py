"""A draw of the project's prose for a reader who did not write it: ``python -m tests.reading SEED``."""
