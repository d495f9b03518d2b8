"""Outputs: are they whole, which checkpoint is the newest that opens, and moving them aside."""
