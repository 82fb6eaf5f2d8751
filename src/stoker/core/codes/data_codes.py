"""Codes of data: what each means and what to do, for `stoker explain`."""

from stoker.core.codes.code import Code
from stoker.core.i18n import N_

CODES: tuple[Code, ...] = (
    Code(
        "ST101",
        N_("data file missing"),
        N_("A file or folder that the job names does not exist, or the job names none."),
        N_("Check the path: paths are relative to the job file's folder."),
    ),
    Code(
        "ST102",
        N_("not an ordinary file"),
        N_(
            "The path leads to a folder, a pipe, a device, a loop of links, a system folder, or a file that may not be read."
        ),
        N_("Name an ordinary, readable csv, tsv, jsonl or parquet file, or an image folder."),
    ),
    Code(
        "ST103",
        N_("unknown format"),
        N_("The file's suffix says no format that stoker reads."),
        N_("Convert it to csv, tsv, jsonl or parquet, not compressed."),
    ),
    Code(
        "ST104",
        N_("empty data file"),
        N_("The file, or the image folder, holds no row."),
        N_("Check how it was written, and that the copy is complete."),
    ),
    Code(
        "ST105",
        N_("wrong text encoding"),
        N_(
            "The file is neither strict UTF-8, nor UTF-16 with a byte-order mark, nor cp949, or not what data.encoding says. stoker never replaces characters that it cannot read."
        ),
        N_("Look at the line and byte named; save the file as UTF-8, or name its encoding in data.encoding."),
    ),
    Code(
        "ST106",
        N_("broken row"),
        N_("A row of a csv or tsv file has more or fewer cells than the header, or a quote that is not closed."),
        N_("Put cells that hold separators, quotes or newlines into quotes, a quote inside doubled."),
    ),
    Code(
        "ST107",
        N_("broken JSON"),
        N_("A line is not strict JSON: not an object, NaN, a key twice, too deep, or a syntax error."),
        N_("Correct the line named; write one object a line."),
    ),
    Code(
        "ST108",
        N_("unreadable parquet"),
        N_("The file is not parquet, is cut off, or unpacks to far more than an honest file of its size."),
        N_("Write the table again from its source."),
    ),
    Code(
        "ST109",
        N_("line or cell too long"),
        N_("A line above 64 Mi characters or a cell above 16 MiB: no text for a model."),
        N_("Check that the file is a text table; cut or split the text before."),
    ),
    Code(
        "ST110",
        N_("missing column"),
        N_("A column that the job names is not in the file."),
        N_("Use one of the columns listed in the message."),
    ),
    Code(
        "ST111",
        N_("wrong kind of value"),
        N_(
            "A cell holds something else than the column is for: a number or list where text belongs, or no chat where one belongs."
        ),
        N_("Correct the row named, or name another column."),
    ),
    Code(
        "ST112",
        N_("column twice"),
        N_("Two columns of the file have the name that the job asks for."),
        N_("Rename or remove one of them."),
    ),
    Code(
        "ST120",
        N_("label is not 0 or 1"),
        N_("A column of a multi-label job holds something else than 0 and 1."),
        N_("Write 0 or 1; for one column of class names use problem: single_label."),
    ),
    Code(
        "ST121",
        N_("label not in the list"),
        N_("A row's label is not among data.label_names."),
        N_("Correct the row, or add the label to data.label_names."),
    ),
    Code(
        "ST122",
        N_("nothing to learn"),
        N_("All training rows have the same label, or every label column is constant."),
        N_("Check the label column and the split; train on rows of at least two classes."),
    ),
    Code(
        "ST123",
        N_("label absent from validation"),
        N_(
            "No validation sample has this label, so no metric or threshold can be measured for it; it is listed and left out of averages."
        ),
        N_("Hold out more rows, or move a few rows of this label."),
    ),
    Code(
        "ST124",
        N_("label absent from training"),
        N_("No training sample has this label: the model cannot learn it."),
        N_("Add rows of this label, or remove it from the labels."),
    ),
    Code(
        "ST125",
        N_("label only outside training"),
        N_("A validation or test row has a label that no training row has, and data.label_names is not given."),
        N_("List all classes in data.label_names, or correct the split."),
    ),
    Code(
        "ST126",
        N_("too many classes"),
        N_("Nearly every row has a label of its own: the column is an id or a measurement."),
        N_("Name the column of the class."),
    ),
    Code(
        "ST130",
        N_("no row left"),
        N_("After leaving out rows without text or label, or responses that are cut away, nothing remains."),
        N_("`stoker check` says why rows are left out; check the column names and seq_len."),
    ),
    Code(
        "ST131",
        N_("rows left out"),
        N_(
            "Some rows have no text or no label, repeat others (with drop_duplicates), or lose their response to the cut."
        ),
        N_("Correct them if they matter; otherwise nothing is to be done."),
    ),
    Code(
        "ST132",
        N_("unknown split"),
        N_("The split column holds a word that means neither train, valid nor test."),
        N_("Write train, valid or test (or a usual spelling of them)."),
    ),
    Code(
        "ST133",
        N_("empty split"),
        N_("No row trains, or too few rows are there to hold some out."),
        N_("Mark training rows with train, or give more rows or a validation file."),
    ),
    Code(
        "ST134",
        N_("repeated samples"),
        N_("Some texts stand several times in one split (case and spacing apart): they weigh more than others."),
        N_("Set data.drop_duplicates: true if that is not meant."),
    ),
    Code(
        "ST135",
        N_("leak between splits"),
        N_("Validation or test samples stand in training too, so the score says less than it seems."),
        N_("Remove them from one split; data.eval_frac keeps equal texts together."),
    ),
    Code(
        "ST136",
        N_("contradicting labels"),
        N_("Equal texts carry different labels; a model cannot get them all right."),
        N_("Look at these rows and settle on one label."),
    ),
    Code(
        "ST140",
        N_("no tokenizer"),
        N_("The model brings no tokenizer here and the job names none."),
        N_("Name its folder under `tokenizer:`, or fetch the model with `stoker check JOB --download`."),
    ),
    Code(
        "ST141",
        N_("unreadable tokenizer"),
        N_("A tokenizer file is broken, or of a kind that needs transformers."),
        N_("Fetch the model's files again; install stoker[train] for sentencepiece-only tokenizers."),
    ),
    Code(
        "ST142",
        N_("everything unknown"),
        N_(
            "More than half of the tokens are unknown to the tokenizer: the vocabulary was lost or belongs to another language."
        ),
        N_(
            "Load the tokenizer that belongs to the model; keep tokenizer.json or vocab.txt with its tokenizer_config.json."
        ),
    ),
    Code(
        "ST143",
        N_("vocabulary larger than the embedding"),
        N_("The tokenizer gives ids that the model has no embedding for; training would fail or read foreign memory."),
        N_("Use the tokenizer that belongs to the model."),
    ),
    Code(
        "ST144",
        N_("seq_len above the model's positions"),
        N_("The model cannot place that many tokens."),
        N_("Lower train.seq_len to the number named; longer texts are cut there."),
    ),
    Code(
        "ST145",
        N_("many samples cut"),
        N_("More than 5 % of the samples are longer than train.seq_len and lose their end."),
        N_("Raise train.seq_len if the model allows, or shorten the texts."),
    ),
    Code(
        "ST146",
        N_("chat cannot be rendered"),
        N_("The tokenizer has no chat template, or the template refuses the chat or hides the assistant's turn."),
        N_("Check roles and order; use prompt and response, or data.template."),
    ),
    Code(
        "ST147",
        N_("many unknown tokens"),
        N_("More than a tenth of the tokens are unknown to the tokenizer."),
        N_("Check that the model was trained on this language."),
    ),
    Code(
        "ST150",
        N_("decomposed text composed"),
        N_(
            "Text as macOS writes it (each Hangul syllable as two or three characters) would take several times the tokens; it is composed first."
        ),
        N_("Nothing; data.normalise: none leaves the text as it is."),
    ),
    Code(
        "ST151",
        N_("read as cp949"),
        N_("The file is not UTF-8 and decodes wholly as cp949."),
        N_("Nothing, or save it as UTF-8 to be sure."),
    ),
    Code(
        "ST152",
        N_("quotes are ordinary characters"),
        N_("Quotes in this tsv file do not pair up, so the file was read without quoting."),
        N_("Nothing, if cells hold no tabs or newlines."),
    ),
    Code(
        "ST160",
        N_("image does not decode"),
        N_("An image file is cut off, empty, absurdly large, or no image."),
        N_("Replace or remove the file named."),
    ),
    Code(
        "ST161",
        N_("unknown image layout"),
        N_(
            "Images are read from a folder with one sub-folder a class, or from a table with data.image and data.labels."
        ),
        N_("Arrange them in one of the two ways."),
    ),
    Code(
        "ST162",
        N_("images not decoded"),
        N_("Pillow is not installed, so only the first bytes of images were checked."),
        N_("pip install pillow."),
    ),
    Code(
        "ST170",
        N_("cache not usable"),
        N_("Tokens cannot be kept in the cache folder, so the next run tokenises again."),
        N_("Make the cache folder writable, or set XDG_CACHE_HOME."),
    ),
    Code(
        "ST171",
        N_("cache built again"),
        N_("Files of the cache did not match their hashes."),
        N_("Nothing; if it happens again, check the disk."),
    ),
    Code(
        "ST180",
        N_("hub data set not here"),
        N_("The data set is not in the local Hugging Face cache, or is not one table a split."),
        N_("Fetch it with `stoker check JOB --download`, or name a file."),
    ),
    Code(
        "ST181",
        N_("cannot be fetched"),
        N_("The hub could not be reached, or refused."),
        N_("Check name, network, HF_HUB_OFFLINE, and HF_TOKEN for gated repositories."),
    ),
    Code(
        "ST190",
        N_("file exists"),
        N_("`stoker init` does not overwrite a file."),
        N_("Choose another name, or pass --force."),
    ),
    Code(
        "ST191",
        N_("cannot write"),
        N_("The folder cannot be written."),
        N_("Choose a folder that you may write to."),
    ),
)
