"""`stoker predict RUN FILE`: apply a trained model, with its stored thresholds, to new rows."""

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from stoker.cli.console import notice, print_answer, print_json
from stoker.cli.options import JsonOption, LangOption
from stoker.core.errors import RunError
from stoker.core.i18n import _
from stoker.core.paths import write_whole

if TYPE_CHECKING:
    from stoker.engine.predict import Prediction


def predict(
    run: Annotated[Path, typer.Argument(help=_("run folder, or its model folder"), metavar="RUN", show_default=False)],
    file: Annotated[
        Path,
        typer.Argument(
            help=_("csv, tsv, jsonl or parquet with the text column; an image or a folder of images"),
            metavar="FILE",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help=_("write here (.csv or .jsonl) instead of printing"), show_default=False),
    ] = None,
    max_new_tokens: Annotated[
        int, typer.Option("--max-new-tokens", help=_("causal_lm: longest continuation"), min=1, max=100_000)
    ] = 128,
    as_json: JsonOption = False,
    lang: LangOption = "",
) -> None:
    from stoker.engine.predict import predict as predict_file

    if out is not None:
        _check_out(out)
    results = predict_file(run, file, max_new_tokens=max_new_tokens, phase=_Lines())
    rows = [_row(result) for result in results]
    if out is not None:
        _write(out, _csv(results) if out.suffix.lower() == ".csv" else _jsonl(rows))
        notice(_("{count} predictions written to {path}").format(count=len(rows), path=out))
    if as_json:
        print_json({"predictions": rows} if out is None else {"count": len(rows), "path": str(out)})
    elif out is None:
        print_answer(_csv(results).rstrip("\n"))


def _check_out(out: Path) -> None:
    """Before the work: a known form, a folder that takes a file. Raises RunError ST442."""
    if out.suffix.lower() not in (".csv", ".jsonl"):
        raise _not_writable(out, _("predictions are written as .csv or .jsonl"))
    if out.is_dir() or not os.access(out.parent, os.W_OK | os.X_OK):
        raise _not_writable(out, _("is a folder") if out.is_dir() else _("its folder is missing or not writable"))


def _write(out: Path, text: str) -> None:
    """Whole or not at all. Raises RunError ST442."""
    try:
        write_whole(out, text.encode("utf-8", errors="replace").decode("utf-8"))  # half characters degrade
    except OSError as error:
        raise _not_writable(out, error.strerror or str(error)) from error


def _not_writable(out: Path, why: str) -> RunError:
    return RunError(
        "ST442",
        _("the predictions cannot be written: {why}").format(why=why),
        place=str(out),
        fix=_("name a .csv or .jsonl file in a folder that you may write, with --out"),
    )


class _Lines:
    """A line of progress every tenth of the way."""

    def __init__(self) -> None:
        self._next = 0.1

    def __call__(self, done: int, total: int) -> None:
        if total and done < total and done / total >= self._next:
            self._next += 0.1
            notice(_("predicted {done} of {total}").format(done=done, total=total))


def _row(result: "Prediction") -> dict[str, Any]:
    row: dict[str, Any] = {"row": result.row}
    if result.labels is not None:
        row |= {"labels": list(result.labels), "probabilities": dict(result.probabilities or {})}
    else:
        row |= {"generated": result.generated, "perplexity": result.perplexity}
    return row


def _jsonl(rows: Sequence[dict[str, Any]]) -> str:
    from stoker.core.codec import dumps

    return "".join(dumps(row) + "\n" for row in rows)


def _csv(results: Sequence["Prediction"]) -> str:
    """One line a row: labels joined by |, then one probability column a label."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    first = results[0] if results else None
    if first is None or first.labels is None:
        writer.writerow(["row", "generated", "perplexity"])
        writer.writerows([r.row, r.generated, "" if r.perplexity is None else f"{r.perplexity:.4f}"] for r in results)
        return stream.getvalue()
    names = list(first.probabilities or {})
    writer.writerow(["row", "labels", *names])
    for result in results:
        values = result.probabilities or {}
        writer.writerow([result.row, "|".join(result.labels or ()), *(f"{values[name]:.6f}" for name in names)])
    return stream.getvalue()
