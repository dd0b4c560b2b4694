package api

import (
	"log/slog"
	"runtime"

	"berth/api/edge"
	"berth/compute"
	"berth/loop"
)

// core is shared by all groups of handlers.
type core struct {
	*edge.Core

	cfg     Config
	log     *slog.Logger
	openapi []byte
	ended   endedCache
	endings endings
	scans   *loop.FairLimiter[compute.OrgID] // Limits reads of many records.
}

// scanShare is the part of the processors that reads of many records may use: half.
// The state and Raft need the rest.
const scanShare = 2

func newCore(of *edge.Core, cfg Config) *core {
	return &core{
		Core: of, cfg: cfg, log: cfg.Logger.With("part", "api"),
		ended: newEndedCache(), endings: endings{all: map[compute.ExecutionID]*awaited{}},
		scans: loop.NewFairLimiter[compute.OrgID](max(1, runtime.GOMAXPROCS(0)/scanShare)),
	}
}
