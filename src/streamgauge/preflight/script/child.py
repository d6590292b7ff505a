"""Runs a training script as `python script.py` would, under hooks that wait for it to import torch.

Started by the launcher as a file, with the standard library alone: the script sets its environment before torch loads.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import json
import os
import sys
import types
from collections.abc import Callable
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from typing import Any

Call = Callable[[types.ModuleType], None]
PACKAGE = str(Path(__file__).parents[2])


class AfterImport(MetaPathFinder):
    """Calls a function when a module has been imported: at once where it is there already."""

    def __init__(self) -> None:
        self._calls: dict[str, Call] = {}
        self._busy: set[str] = set()

    def add(self, name: str, call: Call) -> None:
        if name in sys.modules:
            call(sys.modules[name])
        else:
            self._calls[name] = call

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name not in self._calls or name in self._busy:
            return None
        self._busy.add(name)
        try:
            spec = importlib.util.find_spec(name)  # by the finders that come after this one
        finally:
            self._busy.discard(name)
        loader: Any = spec.loader if spec is not None else None
        if loader is None:
            return spec
        execute = loader.exec_module

        def run(module: types.ModuleType) -> None:
            execute(module)
            call = self._calls.pop(name, None)  # kept until here: many ask for a spec and never import
            if call is not None:
                call(module)

        loader.exec_module = run
        return spec


class Hooks:
    """The session on the script, once there is one."""

    def __init__(self, order: dict[str, Any], imports: AfterImport) -> None:
        self.order, self.imports = order, imports
        self.session: Any = None
        self.root = order.pop("root")

    def start(self, torch: types.ModuleType) -> None:
        if importlib.util.find_spec("streamgauge") is None:
            sys.path.append(self.root)
        from streamgauge.preflight.script.job import Job
        from streamgauge.preflight.script.session import Session

        job = Job(**{**self.order, "args": tuple(self.order["args"])})
        self.session = Session(job, self.imports.add)

    def finish(self, error: BaseException | None) -> bool:
        """Have the answer written; True where the script was ended by us."""
        if self.session is None:
            return False
        stopped: bool = self.session.ended
        self.session.answer(error)
        return stopped


def execute(script: str) -> None:
    """Run the file as the module `__main__`, which stays in place for whatever it leaves behind."""
    path = os.path.abspath(script)
    main = types.ModuleType("__main__")
    main.__dict__.update(
        __file__=path, __loader__=SourceFileLoader("__main__", path), __builtins__=builtins, __spec__=None
    )
    sys.modules["__main__"] = main
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    exec(code, main.__dict__)


def own(error: BaseException) -> None:
    """Take our frames out of the traceback, and out of those of its causes."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        current = waiting.pop()
        if current is None or id(current) in seen:
            continue
        seen.add(id(current))
        current.__traceback__ = _theirs(current.__traceback__)
        waiting += [current.__cause__, current.__context__]


def _theirs(trace: types.TracebackType | None) -> types.TracebackType | None:
    kept = []
    while trace is not None:
        if not trace.tb_frame.f_code.co_filename.startswith(PACKAGE):
            kept.append(trace)
        trace = trace.tb_next
    for before, after in zip(kept, [*kept[1:], None], strict=False):
        before.tb_next = after
    return kept[0] if kept else None


def main() -> None:
    order = json.loads(Path(sys.argv[1]).read_text())
    script = order["script"]
    imports = AfterImport()
    hooks = Hooks(order, imports)
    sys.meta_path.insert(0, imports)
    imports.add("torch", hooks.start)
    sys.argv = [script, *order["args"]]
    sys.path.insert(0, os.path.dirname(os.path.realpath(script)))
    error: BaseException | None = None
    try:
        execute(script)
    except BaseException as raised:
        error = raised
    if hooks.finish(error) or error is None:
        return
    if isinstance(error, SystemExit):
        raise error
    own(error)
    sys.excepthook(type(error), error, error.__traceback__)
    sys.stderr.flush()
    sys.exit(130 if isinstance(error, KeyboardInterrupt) else 1)


if __name__ == "__main__":
    main()
