"""Families that only tables of measurements name: `stoker validate` prices them, no job can train them.

Some have no class in transformers, some no head for a task of ours, and some only facts. FAMILIES is the list.
"""

from stoker.catalogue.models.family import Family
from stoker.catalogue.models.tables import albert, hybrid, image_facts, seq2seq, vision_language

FAMILIES: tuple[Family, ...] = (
    seq2seq.FAMILY,
    hybrid.FAMILY,
    vision_language.FAMILY,
    albert.FAMILY,
    image_facts.FAMILY,
)
