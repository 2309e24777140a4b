"""The command line: `registry` lists the commands, one module per command family, `output` prints their results.

How to add a command (read `version.py`, the shortest one):

1. Write `<family>/<name>.py` with `app = new_app()` and one function under `@command(app, shared options, *examples)`
   of `base.commands.call`; several functions make a family with subcommands. A test runs every example.
2. Add one `CommandEntry` to `registry.py`: to `COMMANDS` or a group. The module is imported only when called, so
   it may import numpy at its top; pandas, scikit-learn and the like stay inside functions.
3. Take `call: CommandCall`; `call.settings` are the settings with the shared options applied. For flags of its own:
   `session_of(call.ctx).load({"profiler.window_days": days}).settings` (None = flag not given).
4. Return data through `call.print(table)` or `output.print_document(obj, call.output)`: stdout is data. Messages go to
   stderr by `output.message(text)`. Progress: `with progress.bars() as watched:`.
5. Fail by raising from `base.errors`: the framework prints message and fix and exits with the error's code.
   `--fail-on` (`FailOnOption`): `FailOn.parse(text).findings(severities)`, then `raise typer.Exit(EXIT_FINDINGS)`.
"""
