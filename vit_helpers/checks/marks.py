"""The former name of `report`: courses made with nbgrader import `share` from here."""

from vit_helpers.checks.report import Mistake, first_line, raised, reject_if, report, run_check, share, short  # noqa: F401

Slip, slip, check, mark = Mistake, reject_if, run_check, report
