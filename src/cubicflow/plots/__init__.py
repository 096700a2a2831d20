"""Matplotlib figures from arrays, and the HTML report of a run. No figure uses matplotlib's global state."""
