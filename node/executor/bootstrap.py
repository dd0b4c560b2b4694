# Executes an execution's code as __main__: first its prior imports, under their
# own file name, then the file itself, as a script or as a notebook cell. Tracebacks
# contain no frame of this directory.
import sys


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


execute(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:])
