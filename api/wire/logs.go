//nolint:lll // A field and its rules are one line.
package wire

import "berth/compute"

// ExecutionLogsQuery are the parameters of GET /logs/execution/{id}.
type ExecutionLogsQuery struct {
	Limit  int    `json:"limit" default:"1000" min:"1" max:"10000" doc:"The newest so many lines."`
	Hours  int    `json:"hours" default:"24" min:"1" max:"168" doc:"Only lines of the last so many hours."`
	Level  string `json:"level" enum:"debug,info,warning,error" doc:"Only lines of at least this level."`
	Search string `json:"search" maxlen:"256" doc:"Only lines that contain this text, letters of either case."`
}

// UserLogsQuery are the parameters of GET /logs/user.
type UserLogsQuery struct {
	Limit  int    `json:"limit" default:"100" min:"1" max:"5000" doc:"The newest so many lines."`
	Hours  int    `json:"hours" default:"1" min:"1" max:"24" doc:"Only lines of the last so many hours."`
	Level  string `json:"level" enum:"debug,info,warning,error" doc:"Only lines of at least this level."`
	Search string `json:"search" maxlen:"256" doc:"Only lines that contain this text, letters of either case."`
}

// Logs answers both.
type Logs struct {
	Logs     []LogLine `json:"logs" doc:"In the order of writing."`
	Total    int       `json:"total" doc:"How many lines match, those beyond limit included."`
	Warnings []string  `json:"warnings" doc:"Why lines may be missing; empty otherwise."`
}

// LogLine is one line that an execution printed.
type LogLine struct {
	Timestamp   compute.Instant     `json:"timestamp"`
	Message     string              `json:"message"`
	Level       string              `json:"level" enum:"debug,info,warning,error" doc:"Level that the line names at its start, such as WARNING; else info for stdout, error for stderr, warning for lines of Berth."`
	ExecutionID compute.ExecutionID `json:"execution_id"`
	UserID      compute.UserID      `json:"user_id"`
	Hostname    string              `json:"hostname" doc:"The node that executed it."`
	Labels      LogLabels           `json:"labels"`
}

// LogLabels say where a line comes from.
type LogLabels struct {
	Stream          string `json:"stream" enum:"stdout,stderr,system"`
	Attempt         uint64 `json:"attempt" doc:"From 1."`
	HardwareProfile string `json:"hardware_profile"`
	Name            string `json:"name" doc:"Name of the execution; may be empty."`
}
