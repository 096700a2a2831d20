"""Random passages of the project's prose, for a reader who did not write them: ``python -m tests.reading SEED``."""
