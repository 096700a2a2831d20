"""How good sampled rows are, beside rows of the table that no model has seen.

matched             tables as matrices: the same columns, the same codes for the same words
detection           can a classifier tell samples from real rows?
shape_and_trend     one column at a time, two columns at a time
closeness           copies of training rows, and the distance to the closest one
contradictions      samples against what holds in all training rows
judgement           all of them, as numbers, as lines of a table, and in a sentence
judged_rows         the rows of files and of a run that are judged
judge_file          judge.json, for the report
"""
