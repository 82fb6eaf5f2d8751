"""Unlike GPUs of one run: the first and the last stage of a pipeline, or of a layer split, as scenarios of their own.

Their ledgers are in `Ledger.stages`; memory is that of the fullest, time that of the ledger itself.
"""

from dataclasses import replace

from stoker.estimators.ledger_sums import sum_ledger
from stoker.estimators.scenario import Scenario


def stage_scenarios(scenario: Scenario) -> tuple[Scenario, ...]:
    """Those of unlike GPUs; none where all hold alike."""
    return tuple(replace(scenario, ledger=stage, sums=sum_ledger(stage)) for stage in scenario.ledger.stages)
