"""Readers: bytes of any origin to tables of text or of Arrow values. No reader knows the kinds of columns."""
