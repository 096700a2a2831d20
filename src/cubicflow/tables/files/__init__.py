"""The kinds of file that tables come in, and the places where they lie, beside CSV, Parquet and NumPy files."""
