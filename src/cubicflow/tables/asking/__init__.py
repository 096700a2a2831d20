"""Questions to a fitted model of columns that nobody planned: conditions, gaps to fill, constraints.

conditions      what a user asks for, as text or values: "price > 5000"
allowed         the set of a column's plain numbers that conditions leave
column_law      one column of the model inside such a set: its mass, and draws from it
particles       rows that are drawn column by column inside the sets, with weights
tilting         draws that look where the conditions will be met
question        conditions, taken together: exact by enumeration, or particles until they suffice
answer          one column given conditions: masses, density, quantiles, each with its error
imputation      rows whose gaps are filled
constraints     what the user knows to hold in every row
asked_table     all of that, of a FittedTable
"""
