package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"berth/fault"
	_ "berth/node/executor/early" // Takes over supervisor processes before main.
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	root := newRoot()
	err := fault.Setup()
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = &exit{code: exitInterrupted, err: errors.New("interrupted")}
	}
	if e, silent := errors.AsType[*exit](err); err != nil && (!silent || e.err != nil) {
		fmt.Fprintln(root.ErrOrStderr(), "berth:", err)
	}
	os.Exit(exitCode(err))
}
