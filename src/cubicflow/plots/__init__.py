"""Arrays in, figures out; and one page that shows a run. Figures are matplotlib's, made without its global state."""
