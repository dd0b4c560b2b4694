# Executes an execution's code as __main__: first its prior imports, under their
# own file name, then the file itself. Tracebacks contain no frame of this file.
import sys


def execute(path, prior, args):
    sys.argv = [path] + args
    sys.path[0] = "/work"
    main = type(sys)("__main__")
    main.__file__ = path
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    try:
        for name in (prior, path):
            if name:
                with open(name, "rb") as file:
                    source = file.read()
                exec(compile(source, name, "exec", dont_inherit=True), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
            trace = trace.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        raise SystemExit(130 if isinstance(error, KeyboardInterrupt) else 1) from None


execute(sys.argv[1], sys.argv[2], sys.argv[3:])
