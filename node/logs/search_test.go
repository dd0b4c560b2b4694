package logs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func TestLevelOf(t *testing.T) {
	for text, want := range map[string]Level{
		"plain text":                       LevelInfo,
		"WARNING:root:disk is nearly full": LevelWarning,
		"2026-11-24 10:00:00,123 - train - ERROR - loss is nan": LevelError,
		`{"time":"10:00","level":"debug","msg":"x"}`:            LevelDebug,
		`time=10:00 level=WARN msg="slow"`:                      LevelWarning,
		"[INFO] loss 0.1 WARN":                                  LevelInfo, // The first one counts.
		"no error here":                                         LevelInfo, // In lower case it is a word.
		"ERRORS: 3":                                             LevelInfo,
		"severity=critical":                                     LevelError,
		strings.Repeat("x ", levelWithin) + "ERROR":             LevelInfo,
		"": LevelInfo,
	} {
		if got := LevelOf(Line{Text: []byte(text)}); got != want {
			t.Errorf("%q: got %v, want %v", text, got, want)
		}
	}
	if got := LevelOf(Line{Stream: Stderr, Text: []byte("Traceback")}); got != LevelError {
		t.Errorf("standard error: got %v", got)
	}
	if got := LevelOf(Line{Stream: System, Text: []byte("[berth: ...]")}); got != LevelWarning {
		t.Errorf("a line of Berth: got %v", got)
	}
	for level := LevelAny; level <= LevelError; level++ {
		if got, ok := ParseLevel(level.String()); !ok || got != level {
			t.Errorf("%v is parsed as %v, %t", level, got, ok)
		}
	}
	if _, ok := ParseLevel("loud"); ok {
		t.Error("an unknown level is accepted")
	}
}

// TestSearch searches two attempts on two nodes from a third one.
func TestSearch(t *testing.T) {
	c, dirs := newCluster(t, 3)
	first := c.place(t, dirs, 1, 1)
	for i := range 3000 {
		mustWrite(t, first, Stdout, fmt.Sprintf("Step %d\n", i))
	}
	mustWrite(t, first, Stderr, "INFO begun\nfailed\n")
	mustEnd(t, first, Final{})
	c.finish(nil)
	second := c.place(t, dirs, 2, 2)
	mustWrite(t, second, Stdout, "STEP again\nWARNING slow step\n")
	mustEnd(t, second, Final{})
	for _, test := range []struct {
		q     Search
		lines string // With their attempts, the newest last.
		total int
	}{
		{Search{Text: "step", Limit: 3}, "1 Step 2999, 2 STEP again, 2 WARNING slow step", 3002},
		{Search{Text: "step 299", Limit: 2}, "1 Step 2998, 1 Step 2999", 11},
		{Search{Least: LevelWarning, Limit: 10}, "1 failed, 2 WARNING slow step", 2},
		{Search{Least: LevelDebug, Limit: 1}, "2 WARNING slow step", 3004},
		{Search{Text: "nothing", Limit: 10}, "", 0},
		{Search{Since: 1 << 62, Limit: 10}, "", 0},
		{Search{}, "", 3004},
	} {
		for n := byte(1); n <= 3; n++ {
			found, err := c.node(n).Search(t.Context(), testExecution(), test.q)
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, l := range found.Lines {
				epoch, _ := Split(l.Seq)
				lines = append(lines, fmt.Sprint(epoch, " ", string(l.Text)))
			}
			if got := strings.Join(lines, ", "); got != test.lines || found.Total != test.total || found.Missing != "" {
				t.Errorf("node %d, %+v: got %q, %d in all, missing %q", n, test.q, got, found.Total, found.Missing)
			}
		}
	}

	c.set(func() { c.down[nodeID(1)] = true })
	found, err := c.node(3).Search(t.Context(), testExecution(), Search{Limit: 10})
	if err != nil || len(found.Lines) != 2 || !strings.Contains(found.Missing, nodeID(1).String()) {
		t.Errorf("with a node down: got %d lines, missing %q, %v", len(found.Lines), found.Missing, err)
	}
}

// TestSearchIsBounded searches lines that are larger than an answer.
func TestSearchIsBounded(t *testing.T) {
	f := newFinder(Search{Limit: MaxSearch})
	const size = maxSearchBytes / 8
	for i := range uint64(100) {
		f.add([]Line{{Seq: i + 1, Text: make([]byte, size)}})
	}
	found := f.result()
	if n := len(found.Lines); n != maxSearchBytes/size || found.Lines[n-1].Seq != 100 || found.Total != 100 {
		t.Errorf("got %d lines of %d", n, found.Total)
	}
	for _, text := range []string{"", strings.Repeat("x", MaxSearchText)} {
		q := request{
			mode: modeSearch, of: attempt{testExecution(), 1 << 60}, limit: MaxSearch,
			query: Search{Since: 1 << 60, Least: LevelError, Text: text},
		}
		if got, err := decodeRequest(q.encode()); err != nil || got != q {
			t.Errorf("got %+v, %v", got, err)
		}
	}
}

// TestSearchJoinsPieces searches lines that were written in pieces, however those come.
func TestSearchJoinsPieces(t *testing.T) {
	for name, test := range map[string]struct {
		pieces string // The stream, the text, and + for a piece that another one follows.
		text   string
		want   string // The numbers and texts of lines.
	}{
		"one piece":          {"o:line 1", "line 1", "1 line 1"},
		"two pieces":         {"o:line +|o:290", "line 29", "2 line 290"},
		"three":              {"o:l+|o:ine +|o:290|o:line 291", "line 29", "3 line 290, 4 line 291"},
		"of two streams":     {"o:line +|e:err+|o:1|e:or", "", "3 line 1, 4 error"},
		"no end":             {"o:line +|e:err+", "", "1 line , 2 err"},
		"a mark in between":  {"o:line +|s:[berth: dropped]|o:290", "", "1 line , 2 [berth: dropped], 3 290"},
		"a level in a piece": {"o:ERR+|o:OR it failed", "", "2 ERROR it failed"},
		"other text":         {"o:line +|o:290", "x", ""},
	} {
		for _, at := range []int{1, 100} { // Lines in a batch.
			f := newFinder(Search{Limit: 10, Text: test.text})
			var lines []Line
			for i, piece := range strings.Split(test.pieces, "|") {
				stream, text, _ := strings.Cut(piece, ":")
				text, partial := strings.CutSuffix(text, "+")
				lines = append(lines, Line{
					Seq: uint64(i + 1), Stream: map[string]Stream{"o": Stdout, "e": Stderr, "s": System}[stream],
					Text: []byte(text), Partial: partial,
				})
			}
			for batch := range slices.Chunk(lines, at) {
				f.add(batch)
			}
			var got []string
			found := f.result()
			for _, l := range found.Lines {
				got = append(got, fmt.Sprintf("%d %s", l.Seq, l.Text))
			}
			if text := strings.Join(got, ", "); text != test.want || found.Total != len(got) {
				t.Errorf("%s: got %q, want %q", name, text, test.want)
			}
		}
	}
	f := newFinder(Search{Limit: 10})
	for i := range uint64(3) {
		f.add([]Line{{Seq: i + 1, Text: make([]byte, maxJoined/2), Partial: true}})
	}
	if found := f.result(); len(found.Lines) != 2 || len(found.Lines[0].Text) != maxJoined {
		t.Errorf("a line without an end is %d lines", len(found.Lines))
	}
}

// TestSearchMovesLinesOnce keeps the newest lines of many, by number and by size, and moves
// each line seldom.
func TestSearchMovesLinesOnce(t *testing.T) {
	for name, tt := range map[string]struct{ limit, size, want int }{
		"by size":   {MaxSearch, 1 << 10, maxSearchBytes >> 10},
		"by number": {100, 10, 100},
		"by both":   {maxSearchBytes >> 10, 1 << 10, maxSearchBytes >> 10},
	} {
		t.Run(name, func(t *testing.T) {
			const lines = 50_000
			f, text := newFinder(Search{Limit: tt.limit}), []byte(strings.Repeat("x", tt.size))
			moved, before := 0, 0
			for n := range lines {
				f.take(Line{Seq: uint64(n), Text: text})
				if now := len(f.found.Lines); now <= before {
					moved += now
				}
				before = len(f.found.Lines)
				if f.bytes > 2*maxSearchBytes {
					t.Fatalf("%d bytes are kept", f.bytes)
				}
			}
			found := f.result()
			if len(found.Lines) != tt.want || found.Lines[0].Seq != uint64(lines-tt.want) || found.Total != lines {
				t.Errorf("%d lines of %d, from %d on", len(found.Lines), found.Total, found.Lines[0].Seq)
			}
			if moved > 2*lines {
				t.Errorf("%d lines moved %d times", lines, moved)
			}
		})
	}
}
