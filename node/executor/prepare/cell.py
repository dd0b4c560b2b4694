# Executes one notebook cell: restores the globals that earlier cells left, echoes
# the value of the last expression, and saves the globals for the next cell.
# bootstrap.py imports it for cells only.
#
# A state is base64 of a zlib stream of a pickle: what the cells imported, the source
# of their functions and classes, and the other globals, one pickle each in one
# stream, so that what two globals share stays shared. It is read and written inside
# the sandbox only.
import ast
import base64
import importlib
import io
import linecache
import os
import pickle
import sys
import types
import zlib

GIVEN = "/berth/kernel_state"
DIRECTORY = "/work/outputs"
SAVED = DIRECTORY + "/.kernel_state"
LIMIT = 3 << 20  # Compressed bytes; in base64 they are the 4 MiB that a start accepts.
LARGEST = 256 << 20  # Bytes of one global in memory: pickling copies it.
FRAME = 1 << 20  # Bytes; names of classes are in smaller pieces of a pickle.
NAMED = 20  # Lost names that are printed.


class Cell:
    def __init__(self, number, scope):
        self.number = number
        self.scope = scope
        self.sources = {}  # Name to (file name, source, the object that it made).
        self.lost = []

    def restore(self):
        if not os.path.exists(GIVEN):
            return
        try:
            with open(GIVEN, "rb") as file:
                state = pickle.loads(zlib.decompress(base64.b64decode(file.read(), validate=True)))
            imports, sources = state["imports"], state["sources"]
            plain, rest = state["plain"], state["rest"]
        except Exception as error:
            raise SystemExit(f"kernel_state cannot be restored: {describe(error)}")
        for name, module in imports:
            with self.losing(name):
                self.scope[name] = importlib.import_module(module)
        # What needs a class or function of a cell comes behind their definitions, and
        # definitions may use the values in front.
        stream = io.BytesIO(b"".join(data for _, data in plain + rest))
        unpickler = pickle.Unpickler(stream)
        self.load(unpickler, stream, plain, 0)
        for name, file, source in sources:
            with self.losing(name):
                self.define(name, file, source)
        self.load(unpickler, stream, rest, sum(len(data) for _, data in plain))
        self.report("cannot be restored")

    def define(self, name, file, source):
        linecache.cache[file + ":" + name] = (len(source), None, source.splitlines(True), file + ":" + name)
        exec(compile(source, file + ":" + name, "exec", dont_inherit=True), self.scope)
        self.sources[name] = (file, source, self.scope[name])

    def load(self, unpickler, stream, values, at):
        for name, data in values:
            with self.losing(name):
                stream.seek(at)
                self.scope[name] = unpickler.load()
            at += len(data)

    def run(self, source, path):
        tree = compile(source, path, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
        text = source.decode("utf-8", "replace")
        echoed = None
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not text.rstrip().endswith(";"):
            echoed = ast.Expression(tree.body.pop().value)
        before = dict(self.scope)
        try:
            exec(compile(tree, path, "exec", dont_inherit=True), self.scope)
            if echoed is not None:
                sys.displayhook(eval(compile(echoed, path, "eval", dont_inherit=True), self.scope))
        finally:
            self.note_sources(tree, text, before)

    def note_sources(self, tree, text, before):
        lines = text.splitlines(True)
        for node in tree.body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                name = node.name
            elif (isinstance(node, ast.Assign) and isinstance(node.value, ast.Lambda)
                    and isinstance(node.targets[0], ast.Name)):
                name = node.targets[0].id
            else:
                continue
            source = ast.get_source_segment(text, node)
            made = self.scope.get(name)
            if made is not None and made is not before.get(name):
                if getattr(node, "decorator_list", []):  # They are in front of the segment.
                    source = "".join(lines[node.decorator_list[0].lineno - 1:node.end_lineno])
                self.sources[name] = (f"<cell {self.number}>", source, made)

    def save(self):
        self.lost = []
        imports, sources, values, total = [], [], [], 0
        for name, value in list(self.scope.items()):
            if name.startswith("__") and name.endswith("__"):
                continue
            if isinstance(value, types.ModuleType):
                imports.append((name, value.__name__))
            elif name in self.sources and self.sources[name][2] is value:
                sources.append((name,) + self.sources[name][:2])
                total += len(self.sources[name][1])
            else:
                with self.losing(name):
                    values.append((*size_of(value), name, value))
        # Definitions keep the order in which they were made.
        order = list(self.sources)
        sources.sort(key=lambda source: order.index(source[0]))
        total += sum(size for size, _, _, _ in values)
        for size, _, name, _ in sorted(values, key=lambda value: value[0], reverse=True):
            if total <= LIMIT:
                break
            total -= size
            self.lost.append((name, f"the state would exceed {LIMIT >> 20} MiB"))
        left_out = {name for name, _ in self.lost}
        stream, state = io.BytesIO(), {"imports": imports, "sources": sources, "plain": [], "rest": []}
        pickler = pickle.Pickler(stream, pickle.HIGHEST_PROTOCOL)
        for _, needs_cells, name, value in sorted(values, key=lambda value: value[1]):
            if name in left_out:
                continue
            at = stream.tell()
            pickler.dump(value)
            state["rest" if needs_cells else "plain"].append((name, bytes(stream.getbuffer()[at:])))
        text = base64.b64encode(zlib.compress(pickle.dumps(state, pickle.HIGHEST_PROTOCOL), 1))
        os.makedirs(DIRECTORY, exist_ok=True)
        with open(SAVED + ".new", "wb") as file:
            file.write(text)
        os.replace(SAVED + ".new", SAVED)
        self.report("is not kept for the next cell")

    def losing(self, name):
        return Losing(self, name)

    def report(self, what):
        for name, why in self.lost[:NAMED]:
            print(f"berth: {name} {what}: {why}", file=sys.stderr)
        if len(self.lost) > NAMED:
            print(f"berth: and {len(self.lost) - NAMED} more", file=sys.stderr)
        sys.stderr.flush()


# Losing notes a global that cannot be saved or restored, and goes on without it.
class Losing:
    def __init__(self, cell, name):
        self.cell = cell
        self.name = name

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if isinstance(error, (Exception, SystemExit)):
            self.cell.lost.append((self.name, describe(error)))
            return True
        return False


class TooLarge(Exception):
    pass


# size_of returns how many compressed bytes the pickle of a value takes, and whether
# it names a class or function of a cell.
def size_of(value):
    held = getattr(value, "nbytes", 0)
    if not isinstance(held, int):
        held = 0
    if max(held, sys.getsizeof(value, 0)) > LARGEST:
        raise TooLarge(f"it takes more than {LARGEST >> 20} MiB")
    sink = Sink()
    pickle.Pickler(sink, pickle.HIGHEST_PROTOCOL).dump(value)
    return sink.size + len(sink.compressor.flush()), sink.needs_cells


# Sink compresses what is written to it and keeps only the size.
class Sink:
    def __init__(self):
        self.compressor = zlib.compressobj(1)
        self.size = 0
        self.plain = 0
        self.needs_cells = False

    def write(self, data):
        view = memoryview(data)
        self.plain += view.nbytes
        if self.plain > LARGEST:
            raise TooLarge(f"it takes more than {LARGEST >> 20} MiB")
        if view.nbytes <= FRAME:
            self.needs_cells = self.needs_cells or b"__main__" in bytes(view)
        self.size += len(self.compressor.compress(view))
        return view.nbytes


def describe(error):
    text = str(error).split("\n")[0][:200]
    return f"{type(error).__name__}: {text}" if text and not isinstance(error, TooLarge) else text or type(error).__name__
