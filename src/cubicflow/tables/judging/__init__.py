"""Quality of sampled rows, compared with held-out rows of the table.

tables          tables as matrices with the same columns and the same codes for the same words
detection       the AUC of a classifier that separates samples from real rows
similarity      similarities of single columns and of pairs of columns
closeness       copies of training rows, and distances to the closest training row
contradictions  samples that break a rule which holds in all training rows
judgement       all measures as numbers, as lines of a table, and as one sentence
judge_file      judge.json in a run folder
rows            the rows to judge, from files or from a run
"""
