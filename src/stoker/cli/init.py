"""`stoker init`: a commented starter job file, every key with its own sentence; or the job file's JSON schema."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from stoker.cli.console import notice, print_answer, print_json
from stoker.cli.options import JsonOption, LangOption
from stoker.core.i18n import _

TaskName = Literal["causal_lm", "text_classification", "image_classification"]
PathArgument = Annotated[Path, typer.Argument(help=_("file to write, or the folder for job.yaml"), metavar="PATH")]
TaskOption = Annotated[TaskName, typer.Option("--task", help=_("what the starter trains"))]
ForceOption = Annotated[bool, typer.Option("--force", help=_("overwrite a file that is there"))]
SchemaOption = Annotated[bool, typer.Option("--schema", help=_("print the JSON schema of job files, write nothing"))]


def init(
    path: PathArgument = Path("job.yaml"),
    task: TaskOption = "text_classification",
    force: ForceOption = False,
    schema: SchemaOption = False,
    as_json: JsonOption = False,
    lang: LangOption = "",
) -> None:
    if schema:
        from stoker.core.job_schema import json_schema

        print_json(json_schema())
        return
    file = path / "job.yaml" if path.is_dir() else path
    _write(file, task, force)
    if as_json:
        print_json({"written": str(file), "task": task})
        return
    print_answer(str(file))
    notice(_("next: name your data in it, then `stoker check {file}`").format(file=file))


def _publish_schema() -> str | None:
    """URI of the JSON schema, written into stoker's cache so that editors find it offline; None where they cannot."""
    from stoker.core.codec import dumps
    from stoker.core.job_schema import json_schema
    from stoker.data.cache import cache_root, write_text

    file = cache_root() / "job.schema.json"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_text(file, dumps(json_schema(), indent=2) + "\n")
    except OSError:
        return None
    return file.as_uri()


def _write(file: Path, task: TaskName, force: bool) -> None:
    from stoker.core.errors import DataError
    from stoker.core.starter import starter_job

    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("w" if force else "x", encoding="utf-8", newline="\n") as stream:
            stream.write(starter_job(task, _publish_schema()))
    except FileExistsError:
        raise DataError(
            "ST190",
            _("the file exists already"),
            place=str(file),
            fix=_("choose another name, or overwrite it with --force"),
        ) from None
    except OSError as error:
        raise DataError(
            "ST191",
            _("cannot be written: {error}").format(error=error.strerror or error),
            place=str(file),
            fix=_("choose a folder that you may write to"),
        ) from error
