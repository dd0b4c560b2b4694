package dev

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// detachedLog is the log file of a cluster without a terminal.
const detachedLog = "dev.log"

// Detach starts the cluster in its own process, which outlives the caller, and
// returns its state once it is ready. Down ends it.
func Detach(ctx context.Context, cfg Config) (State, error) {
	if err := cfg.validate(); err != nil {
		return State{}, err
	}
	if pid, err := holder(cfg.Dir); err != nil || pid != 0 {
		return State{}, errors.Join(fmt.Errorf("%s: %w", cfg.Dir, ErrInUse), err)
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return State{}, err
	}
	if err := removeState(cfg.Dir); err != nil {
		return State{}, err
	}
	log, err := os.OpenFile(filepath.Join(cfg.Dir, detachedLog), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return State{}, err
	}
	defer log.Close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), cfg.Binary, cfg.arguments()...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return State{}, fmt.Errorf("start cluster: %w", err)
	}
	ended := make(chan error, 1) // Buffered, because nobody may receive.
	go func() { ended <- cmd.Wait() }()
	return cfg.awaitState(ctx, ended)
}

// awaitState returns the state once it is written. If ctx ends first, it ends
// the cluster.
func (c *Config) awaitState(ctx context.Context, ended <-chan error) (State, error) {
	var state State
	var err error
	var died bool
	ready := poll(ctx, func() bool {
		select {
		case _, died = <-ended:
		default:
		}
		state, err = ReadState(c.Dir)
		return died || !errors.Is(err, fs.ErrNotExist)
	})
	switch {
	case died:
		text, err := os.ReadFile(filepath.Join(c.Dir, detachedLog))
		return State{}, errors.Join(fmt.Errorf("the cluster did not come up:\n%s", text), err)
	case ready:
		return state, err
	}
	_, err = Down(context.WithoutCancel(ctx), c.Dir)
	return State{}, errors.Join(ctx.Err(), err)
}

// arguments returns the command line of berth dev for c.
func (c *Config) arguments() []string {
	args := []string{"dev", "--dir", c.Dir}
	if c.Nodes != 0 {
		args = append(args, "--nodes", strconv.Itoa(c.Nodes))
	}
	if c.Workers != 0 {
		args = append(args, "--workers", strconv.Itoa(c.Workers))
	}
	if c.GPUs != "" {
		args = append(args, "--gpus", c.GPUs)
	}
	for _, setting := range c.Set {
		args = append(args, "--set", setting)
	}
	if !c.Restart {
		args = append(args, "--no-restart")
	}
	if c.Profiles {
		args = append(args, "--profiles")
	}
	return args
}
