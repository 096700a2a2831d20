"""The law of one column: how a value or a set of values becomes cells, and what a network's params say about cells.

cells       how a model of columns receives one value; learning the cells of a column
coder       sets of a column's values as cells
masses      the spline of a column: densities, masses of intervals and places inside them, without cancellation
law         the distribution of a column given earlier columns, for each of N rows
independent the score of a row if its columns were independent
"""
