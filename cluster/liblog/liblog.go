package liblog

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
)

// levelOf reads the marks that raft and memberlist put into their lines.
func levelOf(mark string) slog.Level {
	switch mark {
	case "ERR", "ERROR":
		return slog.LevelError
	case "WARN":
		return slog.LevelWarn
	case "INFO":
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

// libraryLog turns the lines of a library into records. The message is the constant
// part of the line. The rest goes to the attribute detail, since the libraries' own
// keys are not ours, and an error in it to err.
type libraryLog struct {
	logger *slog.Logger
	cap    slog.Level // Records above it are lowered to it.

	// done, when closed, ends the log: some of a library's goroutines outlive
	// its shutdown, and their words would come after everything else is gone.
	done <-chan struct{}

	// sampled limits the records of each message; nil for no limit.
	sampled *Sampler
}

// Write reads whole lines, as both libraries write them.
func (l libraryLog) Write(data []byte) (int, error) {
	select {
	case <-l.done:
		return len(data), nil
	default:
	}
	for line := range bytes.SplitSeq(bytes.TrimSpace(data), []byte("\n")) {
		l.line(string(line))
	}
	return len(data), nil
}

func (l libraryLog) line(line string) {
	level, text := slog.LevelDebug, line
	if _, rest, ok := strings.Cut(line, "["); ok {
		if mark, after, ok := strings.Cut(rest, "]"); ok {
			level, text = levelOf(mark), strings.TrimSpace(after)
		}
	}
	level = min(level, l.cap)
	ctx := context.Background()
	if !l.logger.Enabled(ctx, level) {
		return
	}
	// "raft: entering follower state: follower=... leader-address=..."
	library, text, ok := strings.Cut(text, ": ")
	if !ok {
		library, text = "", library
	}
	message, detail, _ := strings.Cut(text, ": ")
	if library != "" {
		message = library + " " + message
	}
	var attrs []slog.Attr
	if l.sampled != nil && level >= slog.LevelWarn {
		dropped, ok := l.sampled.Allow(time.Now(), message) //nolint:forbidigo // A library has no clock to pass.
		if !ok {
			return
		}
		if dropped > 0 {
			attrs = append(attrs, slog.Int("count", dropped))
		}
	}
	detail, failure := splitError(strings.TrimSpace(detail))
	if detail != "" {
		attrs = append(attrs, slog.String("detail", detail))
	}
	if failure != "" {
		attrs = append(attrs, slog.String("err", failure))
	}
	l.logger.LogAttrs(ctx, level, strings.ToLower(message), attrs...) //nolint:sloglint // The library's words.
}

// splitError takes the error out of the library's facts, such as
// target=x error="not reachable".
func splitError(detail string) (rest, failure string) {
	const mark = "error="
	at := strings.Index(detail, mark)
	if at < 0 || at > 0 && detail[at-1] != ' ' {
		return detail, ""
	}
	value := detail[at+len(mark):]
	quoted, err := strconv.QuotedPrefix(value)
	if err == nil {
		failure, _ = strconv.Unquote(quoted) // It was just found to be quoted.
		value = value[len(quoted):]
	} else {
		failure, value, _ = strings.Cut(value, " ")
	}
	return strings.TrimSpace(strings.TrimSpace(detail[:at]) + " " + strings.TrimSpace(value)), failure
}

// Raft returns the logger of raft. Its errors are warnings to us: it reports each
// peer that it cannot reach as one, and errors that must end the process go through
// Config.Fatal.
func Raft(logger *slog.Logger) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name:        "raft",
		Level:       hclog.Info,
		Output:      libraryLog{logger: logger, cap: slog.LevelWarn},
		DisableTime: true,
	})
}

// Memberlist returns the writer of memberlist's log until done is closed. Its warnings
// are sampled: any host that reaches the port can cause one with each packet.
func Memberlist(logger *slog.Logger, done <-chan struct{}) io.Writer {
	return libraryLog{logger: logger, cap: slog.LevelWarn, done: done, sampled: new(Sampler)}
}

// Discard returns a logger for a library that drops all records.
func Discard() hclog.Logger { return Raft(slog.New(slog.DiscardHandler)) }
