package config

import (
	"context"
	"io"
	"log/slog"
	"strings"
)

// NewLogger returns the logger that cfg asks for, writing to w.
func NewLogger(cfg Log, w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(cfg.Level)); err != nil {
		level = slog.LevelInfo
	}
	opts := &slog.HandlerOptions{Level: level}
	if cfg.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// RedirectLibraries has the lines that libraries print by package log go to a logger. Each ends
// at its first quotation mark: net/http quotes what an engine sends after its answer, and
// answers are not logged.
func RedirectLibraries(logger *slog.Logger) {
	slog.SetLogLoggerLevel(slog.LevelWarn) // Or none would pass where lines below are left out.
	slog.SetDefault(slog.New(libraryLines{logger.With("part", "library").Handler()}))
}

// libraryLines handles lines of package log.
type libraryLines struct{ slog.Handler }

// Handle writes the beginning of a line.
func (l libraryLines) Handle(ctx context.Context, r slog.Record) error {
	text, _, _ := strings.Cut(r.Message, `"`)
	line := slog.NewRecord(r.Time, slog.LevelWarn, "library message", r.PC)
	line.AddAttrs(slog.String("detail", strings.TrimSpace(text)))
	return l.Handler.Handle(ctx, line)
}
