package api

import (
	"log/slog"

	"berth/api/edge"
)

// core is what all groups of handlers share.
type core struct {
	*edge.Core

	cfg     Config
	log     *slog.Logger
	openapi []byte
}
