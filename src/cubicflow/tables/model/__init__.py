"""The distribution of a column.

masses      the spline of a column: densities, masses of intervals and places inside them, without cancellation
coder       sets of a column's values as cells
law         the distribution of a column given earlier columns, for each of N rows
"""
