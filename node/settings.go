package node

import (
	"berth/compute"
	"berth/fsm/command"
	"berth/node/config"
)

// selectionMax is how many GPU types one GPU selection may try.
const selectionMax = 16

// settingsOf returns the settings of the state from a configuration.
func settingsOf(cfg config.Config) command.Settings {
	return command.Settings{
		SignupGrant:  compute.Credits(cfg.Billing.SignupGrant * float64(compute.Credit)),
		Meter:        cfg.Billing.Mode == "meter",
		Concurrent:   cfg.Limits.Concurrent,
		Queued:       cfg.Limits.Queued,
		Keys:         cfg.Limits.Keys,
		TimeoutMax:   cfg.Limits.TimeoutMax,
		StopGrace:    cfg.Exec.Grace,
		KeepFinished: cfg.Retention.Age,
		MaxFinished:  cfg.Retention.Count,
		SelectionMax: selectionMax,

		TimeoutDefault: cfg.Limits.TimeoutDefault,

		ShareHalfLife: cfg.Limits.ShareHalfLife,
		PreemptMinRun: cfg.Limits.PreemptMinRun,
		PreemptNotice: cfg.Limits.PreemptNotice,
	}
}
