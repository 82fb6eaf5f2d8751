"""stoker plans a fine-tuning job, runs that very plan, and shows where its time and memory went."""

__version__ = "0.1.0"
