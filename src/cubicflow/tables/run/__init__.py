"""Fits and runs: how a fit begins, the scores of its parts and their verdict, two runs compared, and output files."""
