"""Text as people write it: where the names stand, which lines are remarks, how numbers and dates are written."""
