"""explain_plan: every number of a plan's pick taken apart, and the levers that would make it smaller.

Everything is estimated anew from the plan's own job, so that a plan read from a file can be explained too.
"""

from stoker.catalogue.models.api import arch_of
from stoker.core.efficiency import Efficiency
from stoker.core.explanation import Explanation
from stoker.core.ledger import ModelArch
from stoker.core.plan import Candidate, Plan
from stoker.core.utilisation import share_of_peak
from stoker.estimators.utilisation import peak_of
from stoker.planner.evaluate import Evaluator
from stoker.planner.levers import adapter_note, find_levers
from stoker.planner.terms import memory_terms, phase_terms
from stoker.planner.tier_terms import tier_terms
from stoker.planner.time_terms import step_terms, total_terms


def explain_plan(plan: Plan, efficiency: Efficiency) -> Explanation | None:
    """The explanation of the pick, else of the first candidate; None where there is none."""
    candidate = plan.picked or next(iter(plan.candidates), None)
    if candidate is None:
        return None
    return explain_candidate(evaluator_of(plan, efficiency), candidate)


def explain_candidate(evaluator: Evaluator, candidate: Candidate) -> Explanation:
    """Terms, phases, utilisation and levers of one candidate."""
    scenario = evaluator.scenario(candidate.cluster, candidate.run_config)
    memory, time = candidate.memory, candidate.time
    per_s = time.model_flops / time.step_s if time.step_s > 0 else 0.0
    share, problem = share_of_peak(per_s, candidate.cluster.device, scenario.ledger.compute_dtype)
    peak, peak_name = peak_of(scenario)
    return Explanation(
        rank=candidate.rank,
        memory=memory_terms(scenario, memory),
        phases=phase_terms(memory),
        step=step_terms(scenario, evaluator.job, evaluator.profile, time),
        total=total_terms(scenario, evaluator.job, evaluator.profile, time),
        tiers=tier_terms(scenario, memory),
        levers=find_levers(evaluator, candidate),
        mfu_frac=share,
        mfu_note=problem,
        model_flops_per_step=time.model_flops,
        peak_flops_per_s=peak,
        peak_name=peak_name,
        notes=tuple(note for note in (adapter_note(evaluator, candidate),) if note),
        sources={"memory": memory.source, "time": time.source},
    )


def evaluator_of(plan: Plan, efficiency: Efficiency) -> Evaluator:
    """What estimated `plan`, made again from the plan alone. Raises ModelError for a family unknown here."""
    return Evaluator(
        job=plan.job,
        profile=plan.profile,
        arch=_arch(plan),
        efficiency=efficiency,
        is_here=plan.job.hardware.here,
    )


def _arch(plan: Plan) -> ModelArch:
    labels = plan.profile.num_labels or plan.job.num_declared_labels
    return arch_of(plan.model, task=plan.job.task, num_labels=labels, image_size=plan.job.train.image_size)
