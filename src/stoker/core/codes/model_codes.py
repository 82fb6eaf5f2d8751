"""Codes of models: what each means and what to do, for `stoker explain`."""

from stoker.core.codes.code import Code
from stoker.core.i18n import N_

CODES: tuple[Code, ...] = (
    Code(
        "ST201",
        N_("unknown model"),
        N_(
            "The name is no folder or file here, not in the local Hugging Face cache, and not among the shapes that ship with stoker. Planning never uses the network."
        ),
        N_(
            "Check the spelling against the names in the message, or fetch the model once with `stoker check JOB --download`."
        ),
    ),
    Code(
        "ST202",
        N_("no config.json"),
        N_("A model folder needs the config.json that its publisher wrote; there is none that can be read."),
        N_("Name the folder that holds config.json, or the file itself (then the weights start random)."),
    ),
    Code(
        "ST203",
        N_("config unreadable"),
        N_("The file is not UTF-8 JSON, holds NaN or a key twice, nests too deep, or is far larger than any config."),
        N_("Fetch the file again from where the model was published."),
    ),
    Code(
        "ST204",
        N_("unknown model family"),
        N_("The model_type of the config has no shape here, so that nothing true could be said about its memory."),
        N_("Use a model of a supported family; the message lists them. Code that a model brings is never run."),
    ),
    Code(
        "ST205",
        N_("config value not allowed"),
        N_("A key of the config is missing, negative, absurd, or does not fit another (heads must divide the width)."),
        N_("Correct the key named, or fetch the config again."),
    ),
    Code(
        "ST206",
        N_("unknown key in an inline shape"),
        N_("An inline shape may only hold keys of its family, under their Hugging Face names."),
        N_("Use the nearest key named in the message."),
    ),
    Code(
        "ST207",
        N_("weights missing or cut short"),
        N_("A safetensors file of the model is absent, empty, or shorter than its own header says."),
        N_("Fetch the file named again; an interrupted download or a full disk is the usual cause."),
    ),
    Code(
        "ST208",
        N_("weights are a pickle"),
        N_(
            "The folder has only pickled weights (pytorch_model.bin). Loading a pickle can run any code, so stoker never does."
        ),
        N_(
            "Where you trust the source, load it once with transformers and write it again with save_pretrained, which writes model.safetensors."
        ),
    ),
    Code(
        "ST209",
        N_("index points outside"),
        N_(
            "The index of the weights names a file outside its folder, or one that is no safetensors file. An honest publisher's index never does."
        ),
        N_("Do not use this folder; fetch the model again from its publisher."),
    ),
    Code(
        "ST210",
        N_("model cannot do the task"),
        N_("The family has no head for the task, such as an encoder asked for causal language modelling."),
        N_("Choose another model or another task; the message lists the tasks of this one."),
    ),
    Code(
        "ST211",
        N_("no tokenizer"),
        N_("The key tokenizer names a file or folder that is not here."),
        N_("Name a folder with tokenizer.json or vocab.txt, relative to the job file."),
    ),
)
