package handler

import (
	"log/slog"
	"runtime"

	"berth/api/edge"
	"berth/compute"
	"berth/loop"
)

// Core is shared by all groups of handlers.
type Core struct {
	*edge.Core

	Config Config
	Log    *slog.Logger
	Scans  *loop.FairLimiter[compute.OrgID] // Limits reads of many records.
}

// scanShare is the part of the processors that reads of many records may use: half.
// The state and Raft need the rest.
const scanShare = 2

// New returns the Core of the groups of a server with a configuration.
func New(of *edge.Core, cfg Config) *Core {
	return &Core{
		Core: of, Config: cfg, Log: cfg.Logger.With("part", "api"),
		Scans: loop.NewFairLimiter[compute.OrgID](max(1, runtime.GOMAXPROCS(0)/scanShare)),
	}
}
