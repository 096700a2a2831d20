"""Conditional queries to a fitted model of columns: conditions on any columns, imputation, constraints.

conditions      conditions as a user writes them, such as "price > 5000"
condition_sets  the set of a column's values that meets a condition
particles       weighted rows, drawn column by column inside the sets
tilting         proposals that prefer rows which meet the conditions
question        all conditions together: exact by enumeration, or by particles
answer          one column given conditions: masses, density, quantiles, each with its error
imputation      filling the missing values of rows
constraints     relations that hold in every row
asked_table     the methods of FittedTable for all of these
"""
