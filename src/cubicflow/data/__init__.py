"""Sources of rows: densities on the plane, built-in tables, and your own arrays and files."""
