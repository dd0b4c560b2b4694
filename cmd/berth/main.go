package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"

	"berth/cmd/berth/cli"
	"berth/fault"
)

func main() {
	takeOver()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	root := newRoot()
	err := fault.Setup()
	if err == nil {
		err = root.ExecuteContext(ctx)
	}
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = &cli.ExitError{Code: cli.ExitInterrupted, Err: errors.New("interrupted")}
	}
	if err != nil {
		cli.PrintError(root.ErrOrStderr(), err)
	}
	os.Exit(cli.ExitCode(err))
}
