"""Codes of plan: what each means and what to do, for `stoker explain`."""

from stoker.core.codes.code import Code

CODES: tuple[Code, ...] = ()
