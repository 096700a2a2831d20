"""Sources of tables other than CSV, Parquet and NumPy files: further file formats, URLs, queries, standard input."""
