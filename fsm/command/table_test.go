package command

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"berth/compute"
	"berth/fsm/format"
	"berth/fsm/store"
)

// helpers are the exported types that are not payloads.
func helpers() []string {
	return []string{
		"Command", "Op", "Actor", "Settings", "Child", "AttemptRef", "Result", "ShownNode", "NewReplica", "UsedTokens", "WantedHold",
		"EpochCause", "SealedKind", "SealedKey", "ResealedText", "Call", "Frame", "Proposer",
	}
}

// TestEveryPayloadHasOneRow compares the types of the package with the table.
func TestEveryPayloadHasOneRow(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var payloads, names []string
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if spec, ok := n.(*ast.TypeSpec); ok && spec.Name.IsExported() && !slices.Contains(helpers(), spec.Name.Name) {
				payloads = append(payloads, spec.Name.Name)
			}
			return true
		})
	}
	for _, r := range commands.rows {
		names = append(names, r.name)
	}
	slices.Sort(payloads)
	slices.Sort(names)
	if !slices.Equal(payloads, names) {
		t.Errorf("the payloads are %v, the table has %v", payloads, names)
	}
}

// TestRowsMatchTheirPayloads checks that a payload with an Op is remembered
// by it, and that the leader's commands are refused from an older leader.
func TestRowsMatchTheirPayloads(t *testing.T) {
	for _, r := range commands.rows {
		cmd, err := r.decode([]byte{0xa0})
		if err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		payload := reflect.TypeOf(cmd)
		_, hasOp := payload.FieldByName("Op")
		_, hasTerm := payload.FieldByName("Term")
		hasTerm = hasTerm && r.name != "Clock" // A Clock raises the term.
		if hasOp != (r.op != nil) || hasTerm != (r.term != nil) {
			t.Errorf("%s: Op %v, in its row %v; Term %v, in its row %v", r.name, hasOp, r.op != nil, hasTerm, r.term != nil)
		}
	}
}

func TestAllowedOnFullDisk(t *testing.T) {
	for _, test := range []struct {
		cmd  Command
		want bool
	}{
		{FinishAttempt{}, true},
		{StopExecution{}, true},
		{DeleteExecution{}, true},
		{Tick{}, true},
		{Clock{}, true},
		{LoseAttempts{}, true},
		{StoreRefresh{}, true},
		{SetBrake{}, true},
		{RaiseEpoch{}, true},
		{Submit{}, false},
		{CommitPlan{}, false},
		{CreateUser{}, false},
		{Grant{}, false},
	} {
		r, err := commands.rowOf(test.cmd)
		if err != nil {
			t.Fatal(err)
		}
		if got := AllowedOnFullDisk([]byte{r.number}); got != test.want {
			t.Errorf("%T: %v", test.cmd, got)
		}
	}
	if AllowedOnFullDisk(nil) || AllowedOnFullDisk([]byte{200}) {
		t.Error("an unknown command is allowed")
	}
}

func TestOnlyPayloadsAreEncoded(t *testing.T) {
	for _, cmd := range []Command{nil, 1, "Tick", &Tick{}, Settings{}} {
		if _, err := Encode(cmd); err == nil || !strings.Contains(err.Error(), "not in the table") {
			t.Errorf("%T: %v", cmd, err)
		}
		if _, err := Needs(cmd); err == nil {
			t.Errorf("%T needs a format", cmd)
		}
	}
}

func TestTableIsComplete(t *testing.T) {
	for name, list := range map[string]func() []*row{
		"no number":   func() []*row { return []*row{payload[toy]{since: 1}.row()} },
		"no format":   func() []*row { return []*row{payload[toy]{number: 99}.row()} },
		"same number": func() []*row { return append(rows(), payload[toy]{number: 30, since: 1}.row()) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: it is a table", name)
				}
			}()
			newTable(list()...)
		}()
	}
}

// toy is a command that this test adds.
type toy struct {
	Op    Op     `cbor:"1,keyasint"`
	Term  uint64 `cbor:"2,keyasint"`
	Grant int    `cbor:"3,keyasint,omitempty"`
}

// TestAddingACommand adds a command as CONTRIBUTING.md describes: a payload and a row.
// Encoding, decoding, and what is known of the command follow from the row.
func TestAddingACommand(t *testing.T) {
	table := newTable(append(rows(), payload[toy]{
		number: 200, since: format.Trust, onFullDisk: true,
		op:   func(c toy) Op { return c.Op },
		term: func(c toy) uint64 { return c.Term },
		uses: func(c toy) uint64 { return formatIf(c.Grant > 1, format.Trust+1) },
	}.row())...)
	cmd := toy{Op: Op{ID: compute.OpID{UUID: compute.UUID{7}}}, Term: 3, Grant: 1}
	frame, err := table.encode(cmd)
	if err != nil || frame[0] != 200 {
		t.Fatalf("frame %x, %v", frame, err)
	}
	again, rest, err := table.decode(frame)
	if err != nil || again.Command != Command(cmd) || len(rest) > 0 || again.Name() != "toy" || again.Number() != 200 {
		t.Errorf("came back as %+v, %v", again, err)
	}
	if op, ok := again.Op(); !ok || op != cmd.Op {
		t.Errorf("its request is %+v", op)
	}
	if term, ok := again.Term(); !ok || term != 3 || again.BeforeBootstrap() {
		t.Errorf("its term is %d", term)
	}
	if _, _, err := Decode(frame); err == nil {
		t.Error("a program without the row decodes it")
	}
	if _, _, err := table.decode(slices.Replace(bytes.Clone(frame), 6, 7, 0xff)); err == nil {
		t.Error("a damaged payload is decoded")
	}
	r, err := table.rowOf(cmd)
	if err != nil || r.needs(cmd) != format.Trust || r.needs(toy{Grant: 2}) != format.Trust+1 || !table.rowOfFrame(frame).onFullDisk {
		t.Errorf("its row is %+v, %v", r, err)
	}
}

// TestDecodeRefusesPayloads damages the payloads of frames.
func TestDecodeRefusesPayloads(t *testing.T) {
	for _, r := range commands.rows {
		if _, err := r.decode([]byte("\xa1\x18\x63\x01")); err == nil {
			t.Errorf("%s: a field that it does not have is accepted", r.name)
		}
		cmd, err := r.decode([]byte{0xa0})
		if err != nil || len(store.MustEncode(cmd)) == 0 || !r.is(cmd) {
			t.Errorf("%s: %v", r.name, err)
		}
	}
}
