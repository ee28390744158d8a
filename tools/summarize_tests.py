#!/usr/bin/env python3
"""Adds up the steps of a run and prints `N passed, N failed, N skipped` as the last line.

Reads a folder that `./dev` filled: for each step NAME its exit status in NAME.rc and, if it ran
tests, JUnit reports in NAME.xml or NAME.*.xml. A step that failed without a failed test in its
report (a crash, a lint error) counts as one failure.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from pathlib import Path


def count(report: Path) -> tuple[int, int, int]:
    """Returns how many test cases of a JUnit report passed, failed and were skipped."""
    passed = failed = skipped = 0
    for case in ET.parse(report).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return passed, failed, skipped


def step_counts(rc_file: Path) -> tuple[int, int, int]:
    """Returns the counts of one step; a failure that no test shows is one more failure."""
    totals = [0, 0, 0]
    for report in [rc_file.with_suffix(".xml"), *rc_file.parent.glob(f"{rc_file.stem}.*.xml")]:
        if not report.exists():
            continue
        try:
            totals = [total + new for total, new in zip(totals, count(report), strict=True)]
        except ET.ParseError:  # the program died while it wrote
            pass
    counts = (totals[0], totals[1], totals[2])
    if rc_file.read_text().strip() != "0" and counts[1] == 0:
        return counts[0], 1, counts[2]
    return counts


def main() -> int:
    totals = [0, 0, 0]
    for rc_file in sorted(Path(sys.argv[1]).glob("*.rc"), key=lambda path: path.stat().st_mtime):
        counts = step_counts(rc_file)
        seconds = rc_file.with_suffix(".seconds").read_text().strip()
        shown = "{} passed, {} failed, {} skipped".format(*counts)
        print(f"{rc_file.stem:<12} {shown:<40} {seconds:>5} s")
        totals = [total + new for total, new in zip(totals, counts, strict=True)]
    print("{} passed, {} failed, {} skipped".format(*totals))
    return totals[1] > 0


if __name__ == "__main__":
    sys.exit(main())
