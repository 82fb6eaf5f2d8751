"""Predicted beside measured: public tables and own records, row by row, and the scores."""
