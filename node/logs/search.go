package logs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"slices"

	"berth/compute"
)

// Level is how serious a line is.
type Level uint8

// The levels, in their order. Values are sent between nodes: append only.
const (
	LevelAny Level = iota // Least of a Search that takes all lines.
	LevelDebug
	LevelInfo
	LevelWarning
	LevelError
)

// levelNames are the levels as clients spell them.
//
//nolint:gochecknoglobals // A table.
var levelNames = [...]string{"", "debug", "info", "warning", "error"}

// String returns the level as clients spell it.
func (l Level) String() string { return levelNames[min(int(l), len(levelNames)-1)] }

// ParseLevel is the inverse of String.
func ParseLevel(text string) (Level, bool) {
	i := slices.Index(levelNames[:], text)
	return Level(max(i, 0)), i >= 0
}

// levelWords are the words that programs write for levels, as the loggers of Python,
// Go, C++ and JavaScript do.
//
//nolint:gochecknoglobals // A table.
var levelWords = map[string]Level{
	"DEBUG": LevelDebug, "TRACE": LevelDebug, "INFO": LevelInfo, "NOTICE": LevelInfo,
	"WARN": LevelWarning, "WARNING": LevelWarning,
	"ERROR": LevelError, "CRITICAL": LevelError, "FATAL": LevelError, "PANIC": LevelError,
}

// levelWithin bounds the start of a line that is searched for its level, in bytes.
const levelWithin = 96

// LevelOf returns the level of a line: the first word at its start that names one in
// upper case or follows level= or "level":. A line without such a word is info on
// standard output, error on standard error, and a warning from Berth itself.
func LevelOf(l Line) Level {
	rest := l.Text[:min(len(l.Text), levelWithin)]
	key := false
	for len(rest) > 0 {
		n := wordLen(rest)
		if n == 0 {
			rest = rest[1:]
			continue
		}
		word := rest[:n]
		rest = rest[n:]
		if key {
			word = bytes.ToUpper(word)
		}
		if level, ok := levelWords[string(word)]; ok {
			return level
		}
		key = string(word) == "level" || string(word) == "severity"
	}
	return [...]Level{LevelInfo, LevelError, LevelWarning}[l.Stream]
}

// wordLen returns the number of letters that b begins with.
func wordLen(b []byte) int {
	for i, c := range b {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
			return i
		}
	}
	return len(b)
}

// Limits of searches.
const (
	MaxSearch      = 10_000  // Lines in one answer.
	MaxSearchText  = 256     // Bytes of Search.Text.
	maxSearchBytes = 4 << 20 // Bytes of text in one answer; older lines are left out.
	maxJoined      = 1 << 20 // Bytes of a line that is joined of its pieces; the rest is another line.
)

// Search says which lines of an execution are wanted.
type Search struct {
	Since compute.Instant // Written at or after.
	Least Level           // At least this level.
	Text  string          // Contained in the line, letters of either case; "" for any.
	Limit int             // The newest so many; at most MaxSearch.
}

// Found is the answer to a Search.
type Found struct {
	Lines   []Line // In the order of writing.
	Total   int    // How many were found, those beyond the limit included.
	Missing string // Why lines may be missing, for people; "" if none is.
}

// finder keeps the newest lines that a search wants.
type finder struct {
	search Search
	text   []byte        // In lower case.
	begun  [streams]Line // The unfinished line of each stream.
	found  Found
	bytes  int
}

func newFinder(s Search) *finder {
	s.Limit = min(max(s.Limit, 0), MaxSearch)
	return &finder{search: s, text: bytes.ToLower([]byte(s.Text))}
}

// add takes lines of an attempt in the order of writing. Pieces of a line are joined: a
// program that writes a line in pieces, slowly, has written one line.
func (f *finder) add(lines []Line) {
	for _, l := range lines {
		if l.Stream == System {
			f.end() // The end of a line may be among what a mark says was dropped.
		}
		if whole, ok := f.join(l); ok {
			f.take(whole)
		}
	}
}

// end takes lines whose ends have not come as they are.
func (f *finder) end() {
	begun := f.begun
	f.begun = [streams]Line{}
	slices.SortFunc(begun[:], func(a, b Line) int { return cmp.Compare(a.Seq, b.Seq) })
	for _, l := range begun {
		if len(l.Text) > 0 {
			f.take(l)
		}
	}
}

// join adds a piece to the line of its stream that has begun. It reports false while the
// end of that has not come. The line has the time of its first piece, the number of its
// last one, and a text that is valid until the next call.
func (f *finder) join(l Line) (whole Line, ok bool) {
	begun := &f.begun[min(l.Stream, System)]
	if len(begun.Text) == 0 && !l.Partial {
		return l, true
	}
	at := l.At
	if len(begun.Text) > 0 {
		at = begun.At
	}
	*begun = Line{Seq: l.Seq, At: at, Stream: l.Stream, Text: append(begun.Text, l.Text...), Partial: l.Partial}
	if l.Partial && len(begun.Text) < maxJoined {
		return Line{}, false
	}
	whole = *begun
	begun.Text = begun.Text[:0]
	return whole, true
}

// take keeps a line if the search wants it.
func (f *finder) take(l Line) {
	if l.At < f.search.Since || f.search.Least > LevelDebug && LevelOf(l) < f.search.Least ||
		len(f.text) > 0 && !bytes.Contains(bytes.ToLower(l.Text), f.text) {
		return
	}
	l.Text = bytes.Clone(l.Text) // The batch would keep its other lines.
	f.found.Lines = append(f.found.Lines, l)
	f.found.Total++
	f.bytes += len(l.Text)
	f.trim()
}

// trim leaves out the oldest lines beyond the limits once there is twice as much, so that
// each line moves to the front of the slice about once.
func (f *finder) trim() {
	if len(f.found.Lines) > 2*f.search.Limit || f.bytes > 2*maxSearchBytes {
		f.limit()
	}
}

// limit leaves out the oldest lines beyond the limits.
func (f *finder) limit() {
	over := max(0, len(f.found.Lines)-f.search.Limit)
	size := f.bytes
	for _, l := range f.found.Lines[:over] {
		size -= len(l.Text)
	}
	for ; size > maxSearchBytes && over < len(f.found.Lines)-1; over++ {
		size -= len(f.found.Lines[over].Text)
	}
	f.drop(over)
}

// drop leaves out the n oldest lines.
func (f *finder) drop(n int) {
	for _, l := range f.found.Lines[:n] {
		f.bytes -= len(l.Text)
	}
	f.found.Lines = slices.Delete(f.found.Lines, 0, n)
}

// result returns what was found.
func (f *finder) result() Found {
	f.end()
	f.limit()
	return f.found
}

// search calls use with the lines of an attempt on this disk that q wants. It waits
// while other outputs are read whole.
func (s *Store) search(ctx context.Context, a attempt, q Search, use func(Found) error) error {
	done, err := s.tails.Take(ctx, a.execution)
	if err != nil {
		return err
	}
	defer done()
	f := newFinder(q)
	add := func(lines []Line) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		f.add(lines)
		return nil
	}
	if _, err := s.follow(ctx, a, 0, hooks{ended: always, lines: add, idle: proceed}); err != nil {
		return err
	}
	return use(f.result())
}

// found sends the answer to a search.
func (s *sender) found(r Found) error {
	for batch := range slices.Chunk(r.Lines, maxBatchLines) {
		if err := s.lines(batch); err != nil {
			return err
		}
	}
	s.buf = finish(binary.AppendUvarint(begin(s.buf[:0], kindFound), uint64(r.Total)), 0)
	return s.send()
}

// found reads the answer to a search.
func (r *receiver) found() (Found, error) {
	var b batch
	for {
		rec, err := r.next()
		switch {
		case err != nil:
			return Found{}, err
		case rec.kind == kindLine && len(b.lines) < MaxSearch:
			b.add(rec.line)
		case rec.kind == kindFound:
			return Found{Lines: b.lines, Total: int(min(rec.total, 1<<40))}, nil
		case rec.kind == kindFault:
			return Found{}, &rec.fault
		default:
			return Found{}, errDamaged
		}
	}
}

// Search returns the newest lines of an execution that q wants, of all its attempts.
// The lines carry numbers as Number makes them. Output on a node that does not answer
// is left out, and Missing says so.
func (f *Follower) Search(ctx context.Context, execution compute.ExecutionID, q Search) (Found, error) {
	attempts, _, err := f.cfg.State.Attempts(ctx, execution)
	if err != nil {
		return Found{}, err
	}
	all := newFinder(Search{Limit: q.Limit})
	for _, a := range attempts {
		if a.Ended && a.EndedAt < q.Since {
			continue
		}
		one, err := f.searchOne(ctx, a, q)
		switch {
		case ctx.Err() != nil:
			return Found{}, ctx.Err()
		case compute.CodeOf(err) == compute.CodeUnavailable:
			all.found.Missing = compute.MessageOf(err)
			continue
		case err != nil:
			return Found{}, err
		}
		for i := range one.Lines {
			one.Lines[i].Seq = Number(a.Epoch, one.Lines[i].Seq)
		}
		if one.Missing != "" {
			all.found.Missing = one.Missing
		}
		total := all.found.Total + one.Total
		for _, l := range one.Lines {
			all.take(l)
		}
		all.found.Total = total
	}
	return all.result(), nil
}

// searchOne searches the output of one attempt, wherever it is.
func (f *Follower) searchOne(ctx context.Context, a compute.Attempt, q Search) (found Found, err error) {
	of := attempt{a.Execution, a.Epoch}
	archive, err := f.openArchive(ctx, a)
	switch {
	case err != nil:
		return Found{}, err
	case archive.output != nil:
		return f.search(ctx, archive, q)
	}
	if a.Node == f.cfg.Node {
		err = f.cfg.Store.search(ctx, of, q, func(r Found) error {
			found = r
			return nil
		})
		return found, err
	}
	err = f.elsewhere(ctx, a, func() (err error) {
		found, err = f.searchOn(ctx, a.Node, request{mode: modeSearch, of: of, limit: q.Limit, query: q})
		return err
	}, func(k copyOf) (err error) {
		if k.node == f.cfg.Node {
			err = f.cfg.Copies.From(k.owner).search(ctx, of, q, func(r Found) error {
				found = r
				return nil
			})
		} else {
			found, err = f.searchOn(ctx, k.node,
				request{mode: modeSearch, of: of, copy: k.owner, limit: q.Limit, query: q})
		}
		if !k.complete {
			found.Missing = compute.MessageOf(k.behind())
		}
		return err
	})
	return found, err
}

// searchOn searches output on another node.
func (f *Follower) searchOn(ctx context.Context, node compute.NodeID, req request) (found Found, err error) {
	err = f.ask(ctx, node, req, func(r *receiver) error {
		found, err = r.found()
		return err
	})
	return found, err
}
