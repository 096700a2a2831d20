"""Files of text: CSV and JSON lines, and the notations of numbers and dates."""
