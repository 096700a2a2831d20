"""Tables as text: the header, comment lines, and the formats of numbers and dates."""
