"""All stable codes, by range.

ST0xx job file, 1xx data, 2xx model, 3xx planning, 4xx running, 5xx environment, 6xx records.
"""

from stoker.core.codes import (
    checkpoint_codes,
    data_codes,
    environment_codes,
    job_codes,
    model_codes,
    plan_codes,
    report_codes,
    run_codes,
    technique_codes,
    tier_codes,
)
from stoker.core.codes.code import Code

ALL_CODES: tuple[Code, ...] = (
    *job_codes.CODES,
    *data_codes.CODES,
    *model_codes.CODES,
    *plan_codes.CODES,
    *run_codes.CODES,
    *checkpoint_codes.CODES,
    *environment_codes.CODES,
    *report_codes.CODES,
    *technique_codes.CODES,
    *tier_codes.CODES,
)


def find_code(number: str) -> Code | None:
    """The code called `number`, in any case."""
    return next((code for code in ALL_CODES if code.number == number.strip().upper()), None)
