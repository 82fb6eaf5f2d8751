"""Techniques: each file holds one, its cost (on the ledger) and its construction (in torch) side by side."""
