package api

import (
	"log/slog"
)

// core is what all groups of handlers share.
type core struct {
	*base

	cfg     Config
	log     *slog.Logger
	openapi []byte
}
