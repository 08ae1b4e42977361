"""The former name of `report` and `compare`: courses made with nbgrader import `share` from here."""

from vit_helpers.checks.compare import (  # noqa: F401
    accelerators,
    differ,
    expect_anew,
    expect_anywhere,
    expect_digits,
    expect_gradient,
    expect_steady,
    expect_tensor,
    gradient,
    same,
    untouched,
)
from vit_helpers.checks.report import Mistake, first_line, raised, reject_if, report, run_check, share, short  # noqa: F401

Slip, slip, check, mark = Mistake, reject_if, run_check, report
