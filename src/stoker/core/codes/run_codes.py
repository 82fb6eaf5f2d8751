"""Codes of run: what each means and what to do, for `stoker explain`."""

from stoker.core.codes.code import Code
from stoker.core.i18n import N_

CODES: tuple[Code, ...] = (
    Code(
        "ST400",
        N_("nothing to run"),
        N_("The plan holds no candidate that fits, so there is nothing that `run` could start."),
        N_("`stoker plan JOB --all` shows what was rejected and what would make it fit."),
    ),
    Code(
        "ST401",
        N_("run folder not writable"),
        N_("The folder of --out cannot be made or written; told before the first step."),
        N_("Choose a folder that you may write, on a disk with free space."),
    ),
    Code(
        "ST403",
        N_("run folder of another job"),
        N_(
            "The folder holds a run whose model, data, tuning, training or precision differ from this job's; the message names what. Files count by content, not by path. Going on would mix two runs."
        ),
        N_("Choose another --out, or run the job that the folder belongs to (its job.yaml lies there)."),
    ),
    Code(
        "ST404",
        N_("checkpoint of another model"),
        N_("The tensors of the checkpoint have other names or shapes than this model's."),
        N_("Choose another --out, or restore the job as it was."),
    ),
    Code(
        "ST405",
        N_("planned device not here"),
        N_("The plan is for a GPU, and this machine has none that torch can use."),
        N_("Run it on such a machine, or plan with hardware: {here: true}."),
    ),
    Code(
        "ST406",
        N_("number format not supported here"),
        N_("The device's compute capability does not allow the planned precision or attention kernel."),
        N_("Plan again on this machine, or pin run.precision and run.attention to what it can do."),
    ),
    Code(
        "ST407",
        N_("several GPUs planned"),
        N_("The plan spreads the job over several GPUs, which this version does not run yet."),
        N_("Plan with hardware.num_gpus: 1: accumulation keeps the global batch, and so the learning curve."),
    ),
    Code(
        "ST410",
        N_("weights missing"),
        N_("The model folder has no model.safetensors, or its index names a shard that is not there."),
        N_("Fetch the whole model; `stoker check --download` does it for a hub model."),
    ),
    Code(
        "ST411",
        N_("weights damaged"),
        N_(
            "A safetensors file is shorter than its header says, has no valid header, or holds another model's tensors."
        ),
        N_("Fetch the file again and compare its hash with the source's."),
    ),
    Code(
        "ST412",
        N_("weights are a pickle"),
        N_("Opening a pickle runs whatever code it holds, so it is never opened."),
        N_("Use the safetensors version of the model."),
    ),
    Code(
        "ST413",
        N_("weights not on this machine"),
        N_(
            "The model is known by its shape, but its weights are not in the local cache, and `run` never uses the network by itself."
        ),
        N_("Fetch them with `stoker check --download`, or name a local folder."),
    ),
    Code(
        "ST414",
        N_("model cannot be built"),
        N_("transformers refused the config or the weights."),
        N_("Check config.json's model_type and the installed version of transformers."),
    ),
    Code(
        "ST415",
        N_("nothing learns"),
        N_("Every parameter is frozen."),
        N_("Freeze fewer modules in tune.freeze."),
    ),
    Code(
        "ST420",
        N_("loss not finite"),
        N_(
            "The loss or its gradient became NaN or infinite. The run stopped before that step changed a weight; the last checkpoint is kept."
        ),
        N_("Lower train.lr, lengthen train.warmup_frac, or leave fp16 for bf16_amp or fp32."),
    ),
    Code(
        "ST421",
        N_("fp16 overflow"),
        N_(
            "The scaled gradient was too large for fp16. The step was repeated at half the scale; neither the learning rate nor the update counter moved. A few at the start are normal."
        ),
        N_("If it goes on for long, use bf16_amp or fp32."),
    ),
    Code(
        "ST422",
        N_("fp16 overflow at every scale"),
        N_("The gradient is not finite even without any scaling up."),
        N_("Use bf16_amp or fp32, or lower train.lr."),
    ),
    Code(
        "ST423",
        N_("metric at the baseline"),
        N_(
            "The model answers always the same, so the metric stands where no learning would put it. With sentence encoders the usual cause is a fresh first-token head: they were trained with mean pooling."
        ),
        N_("Set tune.pooling: mean, raise train.head_lr, train longer, or use class_weights: balanced."),
    ),
    Code(
        "ST424",
        N_("label absent from validation"),
        N_("No validation row has this label, so its F1 says nothing; it is left out of the macro average."),
        N_("Give a larger or stratified validation split."),
    ),
    Code(
        "ST425",
        N_("old checkpoints kept"),
        N_("Older checkpoints were not deleted, because the newest did not read back or the disk refused."),
        N_("Check the disk; deleting by hand is safe once a newer checkpoint is whole."),
    ),
    Code(
        "ST426",
        N_("parameters without gradient"),
        N_("Some parameters that should learn take no part in the loss."),
        N_("Harmless on one GPU; freeze them with tune.freeze to save their memory."),
    ),
    Code(
        "ST427",
        N_("checkpoint passed over"),
        N_("A checkpoint is not whole (a kill while saving, a damaged disk). It was set aside, not deleted."),
        N_("Nothing to do: the run goes on from the newest whole one."),
    ),
    Code(
        "ST428",
        N_("longest batch does not fit"),
        N_(
            "Before training the longest micro-batch was tried with room for the optimizer's state, and memory ran out."
        ),
        N_("Lower run.micro_batch_size or train.seq_len, or set run.recompute: full."),
    ),
    Code(
        "ST429",
        N_("GPUs stand idle"),
        N_("More GPUs are visible than the run uses. The batch is never split over them without being asked."),
        N_("Nothing to do, or hide them with CUDA_VISIBLE_DEVICES so that others can use them."),
    ),
    Code(
        "ST430",
        N_("tracker not installed"),
        N_("The job names a tracker whose package is not installed."),
        N_("Install it, or remove it from track: record.jsonl holds everything."),
    ),
    Code(
        "ST431",
        N_("record set aside"),
        N_(
            "record.jsonl of the run folder cannot be read (a damaged disk, an edit by hand). It was renamed, not deleted; the run goes on from its checkpoints and writes a new record."
        ),
        N_("Nothing to do: what was measured before stands in the file that was set aside."),
    ),
    Code(
        "ST432",
        N_("best checkpoint lost"),
        N_(
            "The checkpoint with the best metric is missing or damaged when the run ends, so the model of the last step is exported, with the last step's metrics and thresholds."
        ),
        N_("Check the disk. If the best one matters, train again into another folder."),
    ),
    Code(
        "ST440",
        N_("no trained model here"),
        N_("The folder holds no finished run's model."),
        N_("Name the folder of `stoker run --out` after it finished, or its model folder."),
    ),
    Code(
        "ST441",
        N_("model notes unreadable"),
        N_("stoker.json in the model folder is missing or damaged, so labels and thresholds are unknown."),
        N_("Export the model again by running the same `stoker run` command."),
    ),
    Code(
        "ST442",
        N_("predictions not written"),
        N_("The file of --out is of no known form, or its folder is missing, full or read-only."),
        N_("Name a .csv or .jsonl file in a folder that you may write."),
    ),
)
