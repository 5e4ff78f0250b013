"""The command line: sweep, export, inspect, verify, explain, doctor. Errors of the user are one line, exit code 2."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from kernels.device import GFX950
from kernels.errors import InputError
from kernels.problem import GemmShape
from kernels.wording import counted, first_of
from search.formats import TABLE_FORMAT, of_source
from search.study.samplers import SAMPLERS
from search.terminal import (
    EXIT_INTERRUPTED,
    TextTable,
    naming,
    one_line_errors,
    output_console,
    print_lines,
    print_table,
)

if TYPE_CHECKING:
    from kernels.device import DeviceKey
    from search.commands.export import Claim, Export, Proof
    from search.commands.sweep import SweepRequest, SweepResult
    from search.report.progress import TerminalReporter
    from search.report.view import View
    from search.results.starts import Start
    from search.space.shapes import ShapeSet

EXIT_UNRESOLVED = 1  # some shapes have no winner
PROVE_ELSEWHERE = "export again where there is more memory and time, or with --no-proof"
NAMED = 5  # shapes of a list that can be long
RESULTS = Path("results")
UNTIL = 0.3  # percent of the best time
MAX_REGRET = 3.0  # percent


class InputErrorGroup(TyperGroup):
    """Commands whose InputError is one line on the standard error and exit code 2; any other error is a bug."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        with one_line_errors():
            return super().invoke(ctx)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The command that ``args`` begin with."""
        _refuse_empty(args)
        return super().resolve_command(ctx, args)


def _refuse_empty(words: Sequence[str]) -> None:
    """An empty word is a variable that is not set; as a path it would be the current folder.

    Raises:
        InputError: Names the word in front.
    """
    parts = [part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word])]
    for before, word in pairwise(parts):
        if not word.strip():
            raise InputError(f"nothing behind {before}: an empty variable? give a value, or leave the option out")


PURPOSE = f"Search, tune and inspect MXFP4 GEMM kernels for {GFX950.arch} ({', '.join(GFX950.architecture.products)})."
app = typer.Typer(
    cls=InputErrorGroup,
    help=PURPOSE,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
Results = Annotated[
    Path, typer.Option("--results", metavar="DIR", help="Folder of the results; inspect also takes .parquet and .csv.")
]
More = Annotated[
    list[Path] | None, typer.Argument(metavar="DIR", help="Further results, behind --results DIR; read together.")
]


Storage = Annotated[str | None, typer.Option("--storage", metavar="URL", help="Optuna storage instead of the folder.")]
Table = Annotated[Path | None, typer.Option("--table", metavar="FILE", help="Tuned table; default: the project's.")]
Against = Annotated[
    Path | None, typer.Option(metavar="OTHER", help="Compare with results, a tuned table or a published file.")
]
MaxRegret = Annotated[
    float, typer.Option(min=0, metavar="PERCENT", help="With --ranges: what a row may lose at an M that it serves.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _print_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        from kernels.disk import DISTRIBUTION

        typer.echo(f"{DISTRIBUTION} {version(DISTRIBUTION)}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""


@app.command()
def sweep(
    shapes: Annotated[list[str] | None, typer.Argument(metavar="MxNxK", help="M may be 1,2,4..64.")] = None,
    shapes_file: Annotated[
        list[Path] | None, typer.Option("--shapes", metavar="FILE", help="Shapes file (YAML, CSV, list); repeatable.")
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            metavar="NAME", help=f"auto, {GFX950.arch} or {GFX950.arch}-128cu (offline), local, or replay:FILE."
        ),
    ] = "auto",
    families: Annotated[str | None, typer.Option(metavar="A,B,…", help="Kernel families; default: all.")] = None,
    trials: Annotated[
        int, typer.Option(min=1, metavar="N", help="Trials for each shape at most, earlier runs included.")
    ] = 96,
    patience: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="End a shape's search after N trials without a better one.")
    ] = None,
    until: Annotated[
        float, typer.Option(min=0, metavar="PERCENT", help="End it when no point left promises so much; 0: never.")
    ] = UNTIL,
    time_budget: Annotated[float | None, typer.Option(min=0, metavar="S", help="Seconds for the whole sweep.")] = None,
    sampler: Annotated[str, typer.Option(metavar="NAME", help=f"One of {', '.join(SAMPLERS)}.")] = "auto",
    results: Results = RESULTS,
    storage: Storage = None,
    jobs: Annotated[int | None, typer.Option(min=1, metavar="N", help="Worker processes; default: one a core.")] = None,
    engine: Annotated[
        str, typer.Option(metavar="NAME", help="What judges: local, or ray, the nodes of a cluster.")
    ] = "local",
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="With --engine ray: of the cluster, or auto.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Of the samplers.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Begin anew instead of resuming.")] = False,
    warm: Annotated[bool, typer.Option("--warm", help="Measure with operands in the GPU's cache.")] = False,
    ranges: Annotated[
        bool, typer.Option("--ranges", help="Then ask the best of each M at every M of its ladder, and join rows.")
    ] = False,
    max_regret: MaxRegret = MAX_REGRET,
    start_from: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Try its winners first: results, a tuned table, or a file of AITER, vLLM, GPU MODE, Kernel Tuner, T4.",
        ),
    ] = None,
    only: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Try only the candidates of a CSV of inspect --undecided.")
    ] = None,
) -> None:
    """Search the best kernel and configuration for each shape; the same command resumes."""
    from search.commands.sweep import SweepRequest, run_sweep
    from search.report.progress import TerminalReporter
    from search.results.undecided import read_points
    from search.space.shapes import load_shapes

    with naming("--shapes"):
        sets = [load_shapes(file) for file in shapes_file or []]
    with naming("--only"):
        points = None if only is None else read_points(only)
    named = tuple(points) if points and not (shapes or sets) else _shapes(shapes or [], sets)
    weights = {shape: calls for one in sets for shape, calls in one.weights.items()}
    request = SweepRequest(
        shapes=named, only=points, weights=weights, target=target, families=_names(families, "--families"),
        trials=trials, time_budget_s=time_budget, sampler=sampler, results=results, storage=storage, jobs=jobs,
        seed=seed, fresh=fresh, warm=warm, patience=patience, until=until or None, engine=engine, address=address,
    )  # fmt: skip
    if start_from is not None:
        request = replace(request, starts=_starts(start_from, request.shapes))
    with TerminalReporter(output_console(), "the best of each M at every M of its ladder") as reporter:
        done = run_sweep(request, reporter)
        if ranges and not done.interrupted:
            done = replace(done, interrupted=_share(request, reporter))
    if not _print_sweep(request, sets, done, max_regret if ranges else None):
        raise typer.Exit(EXIT_INTERRUPTED if done.interrupted else EXIT_UNRESOLVED)


def _starts(file: Path, shapes: Sequence[GemmShape]) -> Mapping[GemmShape, Sequence[Start]]:
    """What a file has for ``shapes``; what is left out of it is said, and if it has nothing for them."""
    from search.results.starts import read_starts, starts_for

    with naming("--start-from"):
        every, left_out = read_starts(file)
    for line in left_out:
        typer.echo(line, err=True)
    starts = starts_for(every, shapes)
    if not starts:
        typer.echo(f"note: --start-from {file} has nothing for the N and K of these shapes", err=True)
    return starts


def _print_sweep(request: SweepRequest, sets: Sequence[ShapeSet], done: SweepResult, max_regret: float | None) -> bool:
    """What a sweep found out; whether it came to its end and every shape has a winner.

    Args:
        max_regret: Percent; None where no ranges are asked for.
    """
    from search.report.closing import print_closing, print_ranges
    from search.report.gain import gains
    from search.results import load
    from search.results.ranges import choose_ranges
    from search.results.starts import start_lines
    from search.results.winners import Competition

    console = output_console()
    rows = load(request.storage or request.results, list(done.studies.values()))
    competition = Competition.of(rows)
    summaries = print_closing(
        rows, console, interrupted=done.interrupted, competition=competition,
        asked=map(str, request.shapes) if done.interrupted else (),
        gains=[gain.line() for gain in gains(rows, sets, competition, request.published)],
    )  # fmt: skip
    print_lines(start_lines(rows, request.starts), console)
    if max_regret is not None:
        print_ranges(choose_ranges(rows, max_regret / 100), console)
    if done.left:
        print_lines([_left_line(len(request.shapes), len(done.left))], console)
    _report_unresolved([summary.shape for summary in summaries if summary.winner is None])
    won = sum(summary.winner is not None for summary in summaries)
    return won == len(request.shapes) and not done.interrupted


@app.command()
def export(
    more: More = None,
    results: Results = RESULTS,
    storage: Storage = None,
    table: Table = None,
    min_gain: Annotated[
        float, typer.Option(min=0, max=99, metavar="PERCENT", help="What a new row must save to replace an equal one.")
    ] = 1.0,
    format: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"yaml: winners into the table. The table as it is: {of_source('table')}. "
            f"Every trial: {of_source('trials')}.",
        ),
    ] = TABLE_FORMAT,
    output: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="File or folder to write, merging with what is there; default: the table."),
    ] = None,
    ranges: Annotated[
        bool, typer.Option("--ranges", help="The fewest rows of each ladder of M, instead of one for each M.")
    ] = False,
    max_regret: MaxRegret = MAX_REGRET,
    proof: Annotated[
        bool, typer.Option("--proof/--no-proof", help="Execute new rows at every M that they end at, on strided A too.")
    ] = True,
) -> None:
    """Write the winners to the tuned table: better evidenced, then faster rows replace what is there."""
    from search.commands.export import export as write
    from search.results import load_all

    if format != TABLE_FORMAT:
        default = results == RESULTS and storage is None and not more
        _publish(format, () if default else _places(results, storage, more), table, output)
        return
    frame = load_all(_places(results, storage, more))
    done = write(
        frame, table=table, output=output, min_gain=min_gain / 100, max_regret=max_regret / 100 if ranges else None,
        prove=_prove if proof else None,
    )  # fmt: skip
    for one in done:
        _print_export(one)
    unresolved = [shape for one in done for shape in one.unresolved]
    _report_unresolved(unresolved)
    if unresolved or any(one.proof.wrong or one.proof.failed for one in done):
        raise typer.Exit(EXIT_UNRESOLVED)


def _print_export(done: Export) -> None:
    """What became of one table."""
    from kernels.tables.merging import ACTIONS
    from search.results.unfinished import unfinished_line

    counts = ", ".join(f"{done.report.count(action)} {action}" for action in ACTIONS)
    total = f"{done.path}: {counted(len(done.report.table.rows), 'row')} ({counts})"
    print_lines([*_row_lines(done), total], output_console(), indent=9)
    for reason, count in Counter(done.proof.unproven.values()).items():
        typer.echo(f"{done.path}: {counted(count, 'row')} not proven: {reason}", err=True)
    if done.unfinished:
        typer.echo(f"{done.path}: {unfinished_line(done.unfinished)}, then export again", err=True)


def _row_lines(done: Export) -> Iterator[str]:
    """What became of each row."""
    for claim, reason in done.proof.wrong.items():
        yield f"wrong    {claim.row}: {reason}; left out"
    for claim, reason in done.proof.failed.items():
        fate = "stays as it was" if claim.row in done.report.table.rows else "left out"
        yield f"unproven {claim.row}: could not be executed here ({reason}); {fate}; {PROVE_ELSEWHERE}"
    for change in done.report.changes:
        if change.action != "kept" or change.reason != "no new result":
            origin = done.origins.get(change.row.key) if change.action in ("added", "replaced") else None
            place = "" if origin is None else f", from {origin}"
            yield f"{change.action:9}{change.row}: {change.reason}{place}"
    for regret in done.regrets:
        yield f"regret   {regret.line()}"


def _prove(device: DeviceKey, claims: Sequence[Claim]) -> Proof:
    """As ``search.commands.proof``, which is loaded only where a row is to be proven: it needs torch."""
    from search.commands.proof import prove

    try:
        return prove(device, claims)
    except KeyboardInterrupt as interrupt:
        raise KeyboardInterrupt("nothing is written") from interrupt


@app.command()
def inspect(
    more: More = None,
    results: Results = RESULTS,
    storage: Storage = None,
    query: Annotated[str | None, typer.Option(metavar="EXPR", help="Rows, by an expression of columns.")] = None,
    best: Annotated[bool, typer.Option("--best", help="Only the winner of each shape.")] = False,
    sort: Annotated[str | None, typer.Option(metavar="COLUMN", help="Sort; -COLUMN sorts downwards.")] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Columns to show: any of the results, or configuration.")
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="Most rows to show.")] = None,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the rows as .csv, .parquet, or .db for optuna-dashboard.")
    ] = None,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(metavar="DIR", help="Draw each search as PNG.")] = None,
    against: Against = None,
    fail_slower: Annotated[
        float | None,
        typer.Option(min=0, metavar="PERCENT", help="With --against: exit code 1 if a shape got slower by more."),
    ] = None,
    undecided: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the candidates that a winner is not told from, for sweep --only."),
    ] = None,
    timeline: Annotated[
        str | None,
        typer.Option(
            metavar="TRIAL",
            help="Draw the simulated compute unit of a row, counted from 0 as they are shown, or of a shape's winner "
            "(MxNxK), as .png and Perfetto .json: --to, or timeline-... in the current folder.",
        ),
    ] = None,
) -> None:
    """Show the results: a summary of each shape, or the rows and columns that the options choose."""
    from search.report.view import View, column_names, select
    from search.results import load_all
    from search.results.columns import HELP

    view = View(query, best, sort, _names(columns, "--columns"), limit)
    places = _places(results, storage, more)
    frame = load_all(places)
    _echo_left_out(frame)
    if view.columns == (HELP,):
        print_lines([", ".join(column_names(frame))], output_console())
    elif against is not None or fail_slower is not None:
        _compare(select(frame, View(query)), against, fail_slower)
    elif timeline is not None or undecided is not None:
        if timeline is not None:
            _draw_timeline(select(frame, replace(view, columns=None)), timeline, to)
        if undecided is not None:
            _write_undecided(frame, undecided)
    elif as_json or to is not None or plot is not None:
        _write_rows(frame, view, as_json, to, plot)
    else:
        _show(frame, view, places)


def _write_rows(frame: Any, view: View, as_json: bool, to: Path | None, folder: Path | None) -> None:
    """The rows of ``view`` as JSON, as a file, and the searches of its shapes as pictures."""
    from search.report.plots import plot
    from search.report.view import View, select, to_json
    from search.results import save

    rows = select(frame, view)
    lines = []
    if to is not None:
        save(rows, to)
        lines = [f"wrote {to}: {counted(len(rows), 'row')}"]
    if folder is not None:
        lines += [f"wrote {path}" for path in plot(select(frame, View(view.query, view.best)), folder)]
    if as_json:
        typer.echo(to_json(rows))
    else:
        print_lines(lines, output_console())


def _show(frame: Any, view: View, places: Sequence[Path | str]) -> None:
    """The rows of ``view``; without one, what became of each shape."""
    from search.report.closing import overview, print_closing, print_rows, say_if_simulated
    from search.report.gain import gains
    from search.report.view import View, select
    from search.results import asked_for
    from search.results.winners import Competition
    from search.space.shapes import shipped_sets

    console = output_console()
    rows = select(frame, view)
    if view != View():
        say_if_simulated(frame, console)
        print_rows(rows if view.columns is not None else overview(rows), console)
    elif len(frame) and frame["evidence"].isna().all():
        print_rows(overview(frame), console)  # published configurations without a time have no winner
    else:
        competition = Competition.of(frame)
        asked = [shape for place in places for shape in asked_for(place)]
        lines = [gain.line() for gain in gains(frame, shipped_sets(), competition)]
        print_closing(frame, console, asked=asked, gains=lines, competition=competition)


shapes_app = typer.Typer(help="Shapes files.", no_args_is_help=True)
app.add_typer(shapes_app, name="shapes")


@shapes_app.callback()
def shapes_options() -> None:
    """Shapes files: what a model runs."""


@shapes_app.command("from-config")
def from_config(
    config: Annotated[Path, typer.Argument(metavar="FILE", help="A Hugging Face config.json.")],
    tp: Annotated[str, typer.Option(metavar="A,B,…", help="Tensor-parallel ranks of the deployments.")] = "1",
    name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of the model; default: the name of the folder.")
    ] = None,
    output: Annotated[Path | None, typer.Option(metavar="FILE", help="Where to write; default: print it.")] = None,
) -> None:
    """Derive a shapes file from the config.json of a model."""
    from kernels.disk import write_atomically
    from search.space.model_config import load_config, parse_ranks, shapes_text

    ranks = parse_ranks(_names(tp, "--tp") or ())
    text = shapes_text(load_config(config), ranks, name or config.resolve().parent.name)
    if output is None:
        typer.echo(text, nl=False)
        return
    write_atomically(output, text.encode())
    typer.echo(f"wrote {output}")


@app.command()
def report(
    more: More = None,
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Page to write; it needs no network.")
    ] = None,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", metavar="FILE.zip", help="Pack results, faults and versions, without names or paths."),
    ] = None,
    results: Results = RESULTS,
    storage: Storage = None,
    against: Against = None,
) -> None:
    """Write one HTML page with every search, chart and failure of the results, or pack them to send."""
    if html is None and bundle is None:
        raise InputError("nothing to write; give --html FILE or --bundle FILE.zip")
    from search.results import load_all

    frame = load_all(_places(results, storage, more))
    _echo_left_out(frame)
    if bundle is not None:
        _bundle(frame, bundle, results, storage)
    if html is not None:
        from search.commands.report import report as write
        from search.report.gain import gains
        from search.space.shapes import shipped_sets

        write(frame, html, against, [gain.line() for gain in gains(frame, shipped_sets())])
        typer.echo(f"wrote {html}")


def _bundle(frame: Any, path: Path, results: Path, storage: str | None) -> None:
    from search.commands.doctor import examine
    from search.report.bundle import write_bundle

    write_bundle(frame, path, [asdict(check) for check in examine(results, storage)])
    typer.echo(f"wrote {path}; `inspect --results {path}` reads it")


@app.command()
def verify(
    table: Table = None,
    on: Annotated[
        str, typer.Option("--on", metavar="WHAT", help="What runs them: interpreter, simulator or device.")
    ] = "interpreter",
) -> None:
    """Run every row of the table and compare the result with the reference."""
    from search.commands.verify import verify_table

    raise typer.Exit(verify_table(table, on))


@app.command()
def explain(
    M: Annotated[int, typer.Argument(help="Rows of C.")],
    N: Annotated[int, typer.Argument(help="Columns of C.")],
    K: Annotated[int, typer.Argument(help="Inner dimension, logical elements.")],
    table: Table = None,
    as_json: Json = False,
) -> None:
    """Say which row of which table serves a shape, and why."""
    from search.commands.explain import FACT
    from search.commands.explain import explain as answer

    try:
        shape = GemmShape(M, N, K)
    except ValueError as error:
        raise InputError(f"shape {M}x{N}x{K}: {error}") from error
    found = answer(shape, table)
    if as_json:
        typer.echo(json.dumps(found.to_json(), indent=1))
        return
    print_lines(found.lines(), output_console(), indent=FACT)


@app.command()
def calibrate(
    brief: Annotated[
        bool, typer.Option("--brief", help="Few repetitions, to see that everything runs; nothing is stored.")
    ] = False,
    forget: Annotated[
        str | None, typer.Option(metavar="DEVICE", help=f"Remove what is stored of a device, as {GFX950}.")
    ] = None,
) -> None:
    """Measure the timing model's constants on this machine's GPU; later predictions for it use them."""
    if forget is not None:
        typer.echo(_forget(forget))
        return
    from search.commands.calibrate import calibrate as run
    from search.gfx950.model.calibrated import path_of

    found = run(typer.echo, brief=brief)
    rows = tuple((name, f"{usual:.4g}", f"{value:.4g}") for name, usual, value in found.values)
    if rows:
        numbers = frozenset(("of the model", "here"))
        print_table(TextTable(("constant", "of the model", "here"), rows, right=numbers), output_console())
    else:
        typer.echo(f"no model predicts for {found.calibration.device}: nothing uses these numbers")
    if found.stored:
        typer.echo(f"wrote {path_of(found.calibration.device)}")
    else:
        typer.echo("not stored: this was no measurement")


def _forget(text: str) -> str:
    from search.commands.calibrate import forget
    from search.gfx950.model.calibrated import device_of

    device = device_of(text)
    return f"forgot what was measured on {device}" if forget(device) else f"nothing is stored of {device}"


@app.command()
def doctor(results: Results = RESULTS, storage: Storage = None, as_json: Json = False) -> None:
    """List what this machine can do, and how to cure what it cannot."""
    from search.commands.doctor import examine, next_step

    checks = examine(results, storage)
    if as_json:
        typer.echo(json.dumps([asdict(check) for check in checks], indent=1))
        return
    rows = tuple((check.status, check.name, check.detail, check.cure) for check in checks)
    print_table(TextTable(("status", "what", "found", "cure"), rows), output_console())
    typer.echo(f"next: {next_step(checks)}")


def _echo_left_out(frame: Any) -> None:
    """Say what a published file holds and the results do not."""
    from search.results.published import LEFT_OUT

    for line in frame.attrs.get(LEFT_OUT, ()):
        typer.echo(line, err=True)


def _compare(frame: Any, against: Path | None, fail_slower: float | None) -> None:
    """Print the best of each shape beside that of ``against``; exit code 1 if one got too slow."""
    from search.report.comparison import print_comparison
    from search.results.against import alone_line, best_of, compare, load_best, slower

    if against is None:
        raise InputError("--fail-slower needs something to compare with; give --against OTHER")
    with naming("--against"):
        theirs = load_best(against)
    ours = best_of(frame)
    comparisons = compare(ours, theirs)
    print_comparison(comparisons, output_console())
    alone = alone_line(ours, theirs)
    if alone is not None:
        typer.echo(alone)
    worse = [] if fail_slower is None else slower(comparisons, fail_slower / 100)
    if worse:
        shapes = first_of([f"{one.ours.shape} ({100 * one.change:+.1f} %)" for one in worse], NAMED)
        typer.echo(f"slower by more than {fail_slower:g} %: {shapes}", err=True)
        raise typer.Exit(EXIT_UNRESOLVED)


def _places(results: Path, storage: str | None, more: Sequence[Path] | None) -> list[Path | str]:
    """Where the results are that the options name."""
    return [storage or results, *(more or ())]


def _publish(format: str, results: Sequence[Path | str], table: Path | None, output: Path | None) -> None:
    """Write a format of a neighbouring project, and say what of the source it does not hold."""
    from search.commands.publish import publish

    done = publish(format, results=results, table=table, output=output)
    lines = [f"left out {line}" for line in done.left_out]
    if done.paths:
        lines += [f"the format does not hold {done.lost}"] if done.lost else []
        lines += [f"wrote {path}" for path in done.paths]
        lines += [f"{format}: {done.added} added, {done.replaced} replaced"]
    print_lines(lines, output_console(), indent=9)
    if not done.paths:
        typer.echo(f"{format}: nothing is written, for there is nothing that it can say", err=True)
        raise typer.Exit(EXIT_UNRESOLVED)


def main() -> None:
    """Entry point of the program."""
    app()


def _names(text: str | None, option: str) -> tuple[str, ...] | None:
    """Members of the comma-separated list that ``option`` gives; None if it was not given."""
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(","))
    if "" in names:
        raise InputError(f"{option} {text!r} has an empty name; write names with commas between, or leave it out")
    return names


def _shapes(texts: list[str], sets: Sequence[ShapeSet]) -> tuple[GemmShape, ...]:
    from search.space.shapes import parse_shapes

    for line in [line for one in sets for line in one.left_out]:
        typer.echo(line, err=True)
    listed = [shape for one in sets for shape in one.shapes]
    shapes = tuple(dict.fromkeys([*parse_shapes(texts), *listed]))
    if not shapes:
        raise InputError("no shapes; give MxNxK, for example 16x2112x7168, or --shapes configs/shapes/gpumode.yaml")
    return shapes


def _write_undecided(frame: Any, path: Path) -> None:
    from search.results import save
    from search.results.undecided import shape_counts, undecided

    rows = undecided(frame)
    if not len(rows):
        typer.echo("every predicted winner is told from the others; nothing is written")
        return
    for shape, count in shape_counts(rows).items():
        typer.echo(f"{shape}: the winner is one of {count} that are predicted equal")
    save(rows, path)
    typer.echo(f"wrote {path}; to measure these: run_search.py sweep --target local --only {path}")


def _draw_timeline(frame: Any, trial: str, to: Path | None) -> None:
    from search.commands.timeline import timeline

    lines, paths = timeline(frame, trial, to)
    for line in (*lines, *(f"wrote {path}" for path in paths)):
        typer.echo(line)


def _share(request: SweepRequest, reporter: TerminalReporter) -> bool:
    """Ask the best points of each M at the others of its ladder, by a few more trials; whether that was interrupted."""
    from search.commands.sweep import run_sweep
    from search.results import load
    from search.results.ranges import SHARED, unasked

    starts = unasked(load(request.storage or request.results), request.shapes)
    more = replace(request, shapes=tuple(starts), starts=starts, trials=request.trials + SHARED)
    return bool(starts) and run_sweep(more, reporter).interrupted


def _left_line(shapes: int, left: int) -> str:
    searched = f"{shapes - left} of {counted(shapes, 'shape')} searched"
    return f"time budget spent: {searched}, {left} left; the same command goes on"


def _report_unresolved(shapes: list[GemmShape]) -> None:
    """Name the shapes whose trials have no winner."""
    if shapes:
        typer.echo(f"no winner for {first_of(list(map(str, shapes)), NAMED)}", err=True)
