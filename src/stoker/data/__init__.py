"""Data: reading, encodings, Hangul forms, splits, labels, tokenising, caching, the data profile. No torch."""
