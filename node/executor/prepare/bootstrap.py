# Executes an execution's code as __main__: first its prior imports, under their
# own file name, then the file itself, as a script or as a notebook cell. Tracebacks
# contain no frame of this directory. Without arguments it waits for them, and for the
# variables: so the interpreter starts while the rest of the sandbox is prepared.
import sys


def wait():
    import os  # Every interpreter has loaded it.
    words = b"".join(iter(lambda: os.read(3, 65536), b"")).split(b"\0")
    os.close(3)
    if not words[0]:
        raise SystemExit(1)  # The sandbox ends.
    count = 1 + int(words[0])
    os.environ.clear()
    for word in words[count:]:
        name, _, value = word.partition(b"=")
        os.environb[name] = value
    args = [os.fsdecode(word) for word in words[1:count]]
    if hasattr(sys, "orig_argv"):
        sys.orig_argv += args  # Programs start themselves again with it.
    return args


def execute(path, prior, number, args):
    cell = None
    if number != "0":
        import cell as cells  # It lies beside this file.
        del sys.modules["cell"]
    sys.argv = [path] + args
    sys.path[0] = "/work"
    main = type(sys)("__main__")
    main.__file__ = path
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    try:
        if number != "0":
            restored = cells.Cell(number, main.__dict__)
            restored.restore()
            cell = restored
        for name in (prior, path):
            if name:
                with open(name, "rb") as file:
                    source = file.read()
                if cell and name == path:
                    cell.run(source, name)
                else:
                    exec(compile(source, name, "exec", dont_inherit=True), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename.startswith("/berth/"):
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 1) from None
    finally:
        if cell:
            save(cell)


def save(cell):
    try:
        cell.save()
    except Exception as error:
        print(f"berth: the state of the cell is not kept: {error}", file=sys.stderr, flush=True)


given = sys.argv[1:] or wait()
execute(given[0], given[1], given[2], given[3:])
