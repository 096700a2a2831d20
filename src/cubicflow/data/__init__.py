"""Sources of rows: densities on the plane, benchmark tables, images, and your own arrays and files."""
