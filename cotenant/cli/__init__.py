"""The command line: `registry` lists the commands, one module per command family, `output` shows what they return.

How to add a command (read `version.py`, the shortest one):

1. Write `<family>/<name>.py` with `app = new_app()` and one function under `@app.command(epilog=examples(...))`;
   several functions make a family with subcommands. Every example must parse: a test tries them all.
2. Add one `CommandEntry` to `registry.py`: to `COMMANDS` or a group. The module is imported only when called, so
   it may import numpy at its top; pandas, scikit-learn and the like stay inside functions.
3. Take `ctx: typer.Context`; `session_of(ctx).load({"profiler.window_days": days}).settings` are the settings with the
   command's own flags on top (None = flag not given).
4. Return data through `output.print_table(table, output, headers=...)` or `output.print_document(obj, output)`, with
   the options `OutputOption`, `NoHeadersOption`, `DocumentOption`: stdout is data. Messages go to stderr by
   `output.message(text)`. Progress: `with progress.bars() as watched:`.
5. Fail by raising from `base.errors`: the framework prints message and fix and exits with the error's code.
   `--fail-on` (`FailOnOption`): `FailOn.parse(text).findings(severities)`, then `raise typer.Exit(EXIT_FINDINGS)`.
"""
