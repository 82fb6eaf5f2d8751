"""`stoker init`: every starter is a valid job with every key in it, nothing is overwritten, the schema is published."""

import dataclasses
import json
import typing
from pathlib import Path

import pytest

from stoker.catalogue.models.lookup.bundled import find_bundled
from stoker.cli.main import main
from stoker.core.i18n import set_language
from stoker.core.io import read_job
from stoker.core.job import Job, Task
from stoker.core.job_schema import json_schema
from stoker.core.starter import starter_job

TASKS: tuple[Task, ...] = typing.get_args(Task)


def stoker(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(a) for a in arguments])
    return int(ended.value.code or 0)


@pytest.mark.parametrize("language", ["en", "ko"])
@pytest.mark.parametrize("task", TASKS)
def test_every_starter_is_a_job(tmp_path: Path, task: Task, language: str) -> None:
    set_language(language)
    file = tmp_path / "job.yaml"
    file.write_text(starter_job(task), encoding="utf-8")
    assert read_job(file).task == task


@pytest.mark.parametrize("task", TASKS)
def test_every_starter_names_a_model_that_can_be_planned(tmp_path: Path, task: Task) -> None:
    """Without the hub: a newcomer's first plan must not fail on stoker's own example."""
    (tmp_path / "job.yaml").write_text(starter_job(task), encoding="utf-8")
    job = read_job(tmp_path / "job.yaml")
    assert find_bundled(str(job.model)) is not None


@pytest.mark.parametrize("task", TASKS)
def test_every_key_uncommented_is_still_a_job(tmp_path: Path, task: Task) -> None:
    """What stands behind # is each key's own default, so it parses; keys that are null stay away."""
    lines = [
        line.replace("# ", "", 1) if not line.lstrip().startswith("##") else line
        for line in starter_job(task).split("\n")[2:]
    ]
    file = tmp_path / "job.yaml"
    file.write_text("\n".join(line for line in lines if not line.endswith(": null")), encoding="utf-8")
    job = read_job(file)
    assert job.train.max_grad_norm == 1.0 and job.hardware.max_gpus == 8


def test_every_key_and_its_sentence_is_there() -> None:
    text = " ".join(starter_job("text_classification").replace("##", "").split())
    for section in (Job, *(h for h in typing.get_type_hints(Job).values() if dataclasses.is_dataclass(h))):
        for item in dataclasses.fields(section):  # type: ignore[arg-type]
            if not item.metadata.get("internal"):
                assert f"{item.name}:" in text and " ".join(item.metadata["doc"].split()) in text


def test_init_writes_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stoker("init", tmp_path, "--task", "causal_lm") == 0
    file = tmp_path / "job.yaml"
    text = file.read_text(encoding="utf-8")
    assert capsys.readouterr().out.strip() == str(file)
    schema = Path.from_uri(text.split("$schema=")[1].split()[0]) if hasattr(Path, "from_uri") else None
    assert schema is None or json.loads(schema.read_text(encoding="utf-8")) == json_schema()
    assert stoker("init", file) == 2
    assert "[ST190]" in capsys.readouterr().err and file.read_text(encoding="utf-8") == text
    assert stoker("init", file, "--force") == 0
    assert read_job(file).task == "text_classification"
    assert stoker("init", tmp_path / "new" / "my.yaml") == 0 and (tmp_path / "new" / "my.yaml").is_file()


def test_the_published_schema_is_the_one_in_force(capsys: pytest.CaptureFixture[str]) -> None:
    assert stoker("init", "--schema") == 0
    printed = json.loads(capsys.readouterr().out)
    published = Path(__file__).resolve().parents[2] / "docs" / "job.schema.json"
    assert printed == json_schema() == json.loads(published.read_text(encoding="utf-8")), (
        "run `stoker init --schema > docs/job.schema.json`"
    )
