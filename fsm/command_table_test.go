package fsm

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strings"
	"testing"

	"berth/compute"
	"berth/fsm/store"
)

// helpers are the types of command.go that are not payloads.
func helpers() []string {
	return []string{"Command", "Op", "Actor", "Settings", "Child", "AttemptRef", "Result", "ShownNode"}
}

// TestEveryPayloadHasOneRow compares the types of command.go with the table.
func TestEveryPayloadHasOneRow(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "command.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var payloads, names []string
	ast.Inspect(file, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok && !slices.Contains(helpers(), spec.Name.Name) {
			payloads = append(payloads, spec.Name.Name)
		}
		return true
	})
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

// unaudited are the commands of people that no audit trail lists: those about work and
// files, which the history and the bucket have, and those that follow an audited one.
func unaudited() []string {
	return []string{
		"Submit", "StopExecution", "DeleteExecution", "ScaleService", "CompleteExecution", "ChangeDeployment", "UpdateDeployment",
		"CreateUpload", "ReceiveChunks", "CommitUpload", "RedeliverCallbacks", "SetDefaultOrg",
		"CreateBucket", "PutObject", "DeleteObjects", "StartObjectUpload", "PutObjectPart", "AbortObjectUpload",
		"RotateKey", "Reseal", // Listed when they name a new key.
	}
}

// TestCommandsOfPeopleAreAudited checks that each command with an Actor has a line in an
// audit trail, or is one of those that have none on purpose.
func TestCommandsOfPeopleAreAudited(t *testing.T) {
	s := newState()
	for _, r := range commands.rows {
		cmd, err := r.decode([]byte{0xa0})
		if err != nil {
			t.Fatalf("%s: %v", r.name, err)
		}
		if _, ofPeople := reflect.TypeOf(cmd).FieldByName("Actor"); !ofPeople {
			continue
		}
		_, audited := s.trail.entryOf(cmd, Result{})
		if without := slices.Contains(unaudited(), r.name); audited == without {
			t.Errorf("%s: audited %t, listed as not audited %t", r.name, audited, without)
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
		if err := newState().view.Allows(cmd); err == nil {
			t.Errorf("%T may be proposed", cmd)
		}
	}
}

func TestCommandTableIsComplete(t *testing.T) {
	nothing := func(*state, toy) Result { return Result{} }
	for name, rows := range map[string]func() []*row{
		"no number":   func() []*row { return []*row{command[toy]{since: 1, apply: nothing}.row()} },
		"no format":   func() []*row { return []*row{command[toy]{number: 99, apply: nothing}.row()} },
		"no apply":    func() []*row { return []*row{command[toy]{number: 99, since: 1}.row()} },
		"same number": func() []*row { return append(commandRows(), command[toy]{number: 30, since: 1, apply: nothing}.row()) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: it is a table", name)
				}
			}()
			newCommandTable(rows()...)
		}()
	}
}

// toy is a command that this test adds.
type toy struct {
	Op    Op     `cbor:"1,keyasint"`
	Term  uint64 `cbor:"2,keyasint"`
	Grant int    `cbor:"3,keyasint,omitempty"`
}

// TestAddingACommand adds a command as CONTRIBUTING.md describes: a payload,
// its apply function, and a row. Encoding, decoding, the format check, the term
// of the leader and the memory of requests follow from the row.
func TestAddingACommand(t *testing.T) {
	applied := 0
	table := newCommandTable(append(commandRows(), command[toy]{
		number: 200, since: formatTrust, onFullDisk: true,
		op:   func(c toy) Op { return c.Op },
		term: func(c toy) uint64 { return c.Term },
		uses: func(c toy) uint64 { return formatIf(c.Grant > 1, formatTrust+1) },
		apply: func(s *state, c toy) Result {
			applied += c.Grant
			return Result{Count: c.Grant}
		},
	}.row())...)
	cmd := toy{Op: Op{ID: compute.OpID{UUID: compute.UUID{7}}}, Term: 3, Grant: 1}
	frame, err := table.encode(cmd)
	if err != nil || frame[0] != 200 {
		t.Fatalf("frame %x, %v", frame, err)
	}
	if again, rest, err := table.decode(frame); err != nil || again.cmd != Command(cmd) || len(rest) > 0 || again.name != "toy" {
		t.Errorf("came back as %+v, %v", again, err)
	}
	if _, _, err := Decode(frame); err == nil {
		t.Error("a program without the row decodes it")
	}
	if _, _, err := table.decode(slices.Replace(bytes.Clone(frame), 6, 7, 0xff)); err == nil {
		t.Error("a damaged payload is decoded")
	}

	s := newState()
	s.commands = table
	s.view.meta.Cluster, s.view.meta.Term = compute.UUID{1}, 3
	r, err := table.rowOf(cmd)
	if err != nil || r.needs(cmd) != formatTrust || r.needs(toy{Grant: 2}) != formatTrust+1 || !table.rowOfFrame(frame).onFullDisk {
		t.Errorf("its row is %+v, %v", r, err)
	}
	if err := s.view.allowsFormat(r.needs(cmd)); err == nil || compute.CodeOf(err) != compute.CodeConflict {
		t.Errorf("below its format: %v", err)
	}
	s.view.meta.Format = formatTrust
	if err := s.view.allowsFormat(r.needs(cmd)); err != nil {
		t.Errorf("from its format on: %v", err)
	}
	apply := func(cmd toy) Result {
		frame, err := table.encode(cmd)
		if err != nil {
			t.Fatal(err)
		}
		return s.applyEntry(s.view.meta.Index+1, frame, new(stage))[0]
	}
	if got := apply(cmd); got.Refusal != nil || got.Count != 1 || applied != 1 {
		t.Errorf("applied %d times: %+v", applied, got)
	}
	if got := apply(cmd); !got.Repeat || got.Count != 1 || applied != 1 {
		t.Errorf("a repeat was applied: %+v", got)
	}
	cmd.Op.ID.UUID[0], cmd.Term = 8, 2
	if got := apply(cmd); got.Refusal == nil || got.Refusal.Detail != "stale_term" {
		t.Errorf("from an older leader: %+v", got)
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
