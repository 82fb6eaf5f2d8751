"""Codes of checkpoints, run folders and records in writing (ST450 to ST499), for `stoker explain`."""

from stoker.core.codes.code import Code
from stoker.core.i18n import N_

CODES: tuple[Code, ...] = (
    Code(
        "ST450",
        N_("no room for checkpoints"),
        N_(
            "The disk of the run folder has less free space than its checkpoints need: save.keep of them and the one being written, since an old one goes only after the new one was read back. It is the mount of the run folder that counts, not the root."
        ),
        N_("Free space on the mount named, choose another disk with --out, or lower save.keep."),
    ),
    Code(
        "ST451",
        N_("checkpoint not written"),
        N_(
            "The disk refused a write, an fsync or a rename in the middle of a save. What was half written is removed; the checkpoints before it are untouched."
        ),
        N_("Free or mend the disk, then start the same command again: it resumes from the last complete checkpoint."),
    ),
    Code(
        "ST452",
        N_("checkpoint damaged"),
        N_(
            "The bytes of a checkpoint are not those that its manifest lists (size, digest, header), so none of its weights is used."
        ),
        N_(
            "`stoker run` resumes from the newest checkpoint that is whole and sets this one aside as .bad-..., without deleting it."
        ),
    ),
    Code(
        "ST453",
        N_("run folder in use"),
        N_("Another stoker process is working in this run folder; two writers would spoil both runs."),
        N_("Wait for the process named, or stop it (it saves first), or choose another folder with --out."),
    ),
    Code(
        "ST454",
        N_("run folder not writable"),
        N_("The run folder cannot be made or written: missing permission, a read-only file system, or a full disk."),
        N_("Choose a folder that you may write, on a disk with free space, with --out."),
    ),
    Code(
        "ST455",
        N_("record not written"),
        N_(
            "A line of record.jsonl could not be written, most often because the disk is full. The lines before it are safe."
        ),
        N_("Free disk space, then start the same command again: it resumes, and goes on with the same record."),
    ),
    Code(
        "ST456",
        N_("run taken over"),
        N_(
            "While this process was stopped or cut off, another one took the run folder's lock. Its checkpoints must not be overwritten, so this process ends without committing."
        ),
        N_("Leave the run to the other process; `stoker report RUN` shows how far it is."),
    ),
    Code(
        "ST458",
        N_("state cannot be stored"),
        N_(
            "A part of the training state is neither a plain tensor nor a number, a word, a list or a mapping of those. Only safetensors and JSON are written, never a pickle."
        ),
        N_("Report it together with the optimizer and adapter in use; another optimizer works meanwhile."),
    ),
    Code(
        "ST459",
        N_("trained model not written"),
        N_(
            "Training is done and its checkpoints are whole, but the disk refused the exported model. What was half written is removed."
        ),
        N_("Free or mend the disk, then start the same command again: it exports without training again."),
    ),
)
