"""One behaviour suite for all front ends; `test_ops_conformance.py` runs it.

A check is a function of a `FrontEnd` that asserts, on every rank, what a collective promises. Its
expected values come from NumPy or a written formula. To add a front end, add a line to
`front_ends.LOADERS`; to add a check, write a function with the decorator `check`.
"""

from conformance.registry import CHECKS, check, run_checks

__all__ = ["CHECKS", "check", "run_checks"]
