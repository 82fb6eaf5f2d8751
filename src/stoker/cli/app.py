"""The subcommands in the order of a user's day. Command modules import heavy parts inside their functions."""

import typer

from stoker.cli.bench import bench
from stoker.cli.check import check
from stoker.cli.doctor import doctor
from stoker.cli.explain import explain
from stoker.cli.init import init
from stoker.cli.offers import offers
from stoker.cli.plan import plan
from stoker.cli.predict import predict
from stoker.cli.report import report
from stoker.cli.run import run
from stoker.cli.size import size
from stoker.cli.usage import Command, Group
from stoker.cli.validate import validate
from stoker.core.i18n import _


def build_app() -> typer.Typer:
    """The typer application, help in the language in force."""
    app = typer.Typer(
        name="stoker",
        cls=Group,
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        help=_("Plan a fine-tuning job (memory, time, money), run that very plan, and see where it all went."),
        epilog=_("exit codes: 0 ok, 1 bug, 2 bad input, 3 nothing fits, 4 partly done, 5 nothing done"),
    )
    app.command(cls=Command, help=_("write a commented starter job.yaml; --schema prints the job file's JSON schema"))(
        init
    )
    app.command(
        cls=Command, help=_("the data as the model will see it, what is odd about it, and what plan then uses")
    )(check)
    app.command(cls=Command, help=_("memory, time and money on every GPU and strategy that could run the job"))(plan)
    app.command(cls=Command, help=_("train what the job or the plan says; the same command again resumes"))(run)
    app.command(
        cls=Command, help=_("a few real steps of the plan here: predicted beside measured, kept for the next plan")
    )(bench)
    app.command(cls=Command, help=_("apply a trained model, with its stored thresholds, to new rows"))(predict)
    app.command(
        cls=Command, help=_("predicted beside measured, metrics and curves of a run; or several runs side by side")
    )(report)
    app.command(cls=Command, help=_("weights and KV cache of inference, and the longest context that fits"))(size)
    app.command(cls=Command, help=_("what GPUs cost where, with date and source; no network"))(offers)
    app.command(
        cls=Command, help=_("predicted beside measured: published runs, a table of yours (--rows), your own runs")
    )(validate)
    app.command(cls=Command, help=_("optional parts, this machine and its speed, what to do about them"))(doctor)
    app.command(cls=Command, help=_("what a code such as ST012 means and what to do"))(explain)

    @app.callback(invoke_without_command=True)
    def root(version: bool = typer.Option(False, "--version", help=_("print the version"))) -> None:
        if version:
            from stoker import __version__

            typer.echo(__version__)
            raise typer.Exit

    return app
