"""The commands of `keras-attention`; each imports what it needs."""

import contextlib
import logging
import pathlib
from typing import Annotated

import rich
import typer
from rich.console import Console
from rich.table import Table

from keras_attention import __version__

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

_log = logging.getLogger(__name__)
# What errors say to callers in Python, and what that is here.
_AS_FLAGS = {
    "Pass `overwrite=True`": "Pass `--overwrite`",
    "leave `version=None`": "leave out `--version`",
}
_COLOURS = {"pass": "green", "warn": "yellow", "fail": "red", "skip": "dim"}


def _print_version(wanted: bool):
    if wanted:
        print(__version__)
        raise typer.Exit()


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_print_version,
            is_eager=True,
            help="Print the version of the package.",
        ),
    ] = False,
):
    """Attention for Keras 3, from training to the model server."""


@app.command()
def demo(
    output: Annotated[
        pathlib.Path, typer.Option(help="Folder to write to.")
    ] = pathlib.Path("demo"),
    epochs: Annotated[int, typer.Option(help="Passes over the digits.")] = 40,
):
    """Train on handwritten digits, save, export, serve and draw."""
    from keras_attention.demo import run

    try:
        result = run(output, epochs=epochs)
    except ImportError as error:
        _fail(error)
    _print_demo(result)


@app.command()
def export(
    model: Annotated[
        pathlib.Path, typer.Argument(help="A model saved as .keras.")
    ],
    base_path: Annotated[
        pathlib.Path,
        typer.Argument(help="Folder of all versions, for the server."),
    ],
    version: Annotated[
        int | None, typer.Option(help="Number; the next free one if left out.")
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of the model on the server.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(help="Label of the version: stable, canary.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace that version.")
    ] = False,
):
    """Write a trained model as a version folder for TensorFlow Serving."""
    import keras

    from keras_attention.export import export_for_serving

    try:
        with _steps_on_stderr():
            _log.info("Loading %s", model)
            folder = export_for_serving(
                keras.saving.load_model(model, compile=False),
                base_path,
                version=version,
                name=name,
                label=label,
                overwrite=overwrite,
            )
    except (TypeError, ValueError) as error:
        _fail(error)
    print(folder)


@app.command()
def check(
    folder: Annotated[
        pathlib.Path, typer.Argument(help="One version, or all of a model.")
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the report as JSON.")
    ] = False,
    skip: Annotated[
        list[str] | None, typer.Option(help="Check to leave out; repeatable.")
    ] = None,
    batch_size: Annotated[
        list[int] | None, typer.Option(help="Batch size; repeatable.")
    ] = None,
    length: Annotated[
        list[int] | None, typer.Option(help="Length; repeatable.")
    ] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="Run a model that touches files.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(help="Seconds that loading and each run may take.")
    ] = 600.0,
):
    """Prove that a version folder serves; exit with 1 if it does not."""
    from keras_attention import export as exports

    numbers = exports.versions(folder)
    if numbers and not (folder / "saved_model.pb").exists():
        folder = folder / str(numbers[-1])
    try:
        with _steps_on_stderr():
            report = exports.check(
                folder,
                batch_sizes=batch_size or (1, 3, 17),
                lengths=length or (1, 5, 9),
                skip=skip or (),
                trust=trust,
                timeout=timeout,
            )
    except ValueError as error:
        _fail(error)
    if as_json:
        print(report.to_json())
    else:
        _print_report(report)
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def upgrade(
    old: Annotated[
        pathlib.Path, typer.Argument(help="A saved model, .keras or .h5.")
    ],
    new: Annotated[
        pathlib.Path, typer.Argument(help="The .keras file to write.")
    ],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace that file.")
    ] = False,
    imports: Annotated[
        list[str] | None,
        typer.Option("--import", help="Module of its classes; repeatable."),
    ] = None,
    length: Annotated[
        int, typer.Option(help="Length of the sequences to compare on.")
    ] = 7,
):
    """Put the layers of this package into a model saved without them."""
    from keras_attention.upgrading.files import upgrade_file

    try:
        with _steps_on_stderr():
            result = upgrade_file(
                old, new, overwrite, imports=imports or (), length=length
            )
    except (OSError, TypeError, ValueError) as error:
        _fail(error)
    result.report.print()
    print(f"Largest difference on random inputs: {result.difference:.1e}")
    print(result.path)


def _print_demo(result):
    table = Table(title="Handwritten digits, trained, saved and served")
    for title in ("what", "result"):
        table.add_column(title, overflow="fold")
    rows = {
        "accuracy on held-out digits": f"{result.accuracy:.2%}",
        "training time": f"{result.training_seconds:.0f} s",
        "saved model": result.model_path,
        "difference, reloaded in a fresh process": result.reload_difference,
        "folder for TensorFlow Serving": result.export_path,
        "difference, served without this package": result.serving_difference,
        "where each head looks": result.picture_path,
        "try next": f"keras-attention check {result.export_path}",
    }
    for name, value in rows.items():
        table.add_row(name, str(value))
    rich.print(table)


def _print_report(report):
    verdict = "can ship" if report.ok else "must not ship"
    table = Table(title=f"{report.path} {verdict}", show_lines=True)
    for title in ("check", "", "what was seen, what to do"):
        table.add_column(title, overflow="fold")
    for result in report.results:
        colour = _COLOURS[result.status]
        advice = f"\n-> {result.advice}" if result.advice else ""
        table.add_row(
            result.name,
            f"[{colour}]{result.status}[/{colour}]",
            rich.markup.escape(result.detail + advice),
        )
    rich.print(table)


@contextlib.contextmanager
def _steps_on_stderr():
    """Tells what goes on; stdout is for the result alone."""
    handler = logging.StreamHandler()
    package = logging.getLogger("keras_attention")
    level = package.level
    package.addHandler(handler)
    package.setLevel(logging.INFO)
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(level)


def _fail(error):
    text = str(error)
    for argument, flag in _AS_FLAGS.items():
        text = text.replace(argument, flag)
    console = Console(stderr=True, soft_wrap=True)
    console.print(f"Error: {text}", markup=False, style="red")
    raise typer.Exit(1)
