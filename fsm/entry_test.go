package fsm_test

import (
	"strings"
	"testing"

	"github.com/hashicorp/raft"

	"berth/compute"
	"berth/fsm"
	"berth/fsm/command"
)

func TestResultTravels(t *testing.T) {
	w := newWorld(t)
	apply := func(cmd command.Command) command.Result {
		t.Helper()
		w.index++
		answers := w.fsm.Apply(&raft.Log{Index: w.index, Type: raft.LogCommand, Data: w.frame(cmd)}).([][]byte)
		r, err := command.DecodeResult(answers[0])
		if err != nil || len(answers) != 1 {
			t.Fatalf("%d answers, %v", len(answers), err)
		}
		return r
	}
	c := w.python("t4")
	if r := apply(c); r.Execution != c.Execution.ID || r.Status != compute.StatusQueued || r.Refusal != nil {
		t.Errorf("result is %+v", r)
	}
	r := apply(w.python("b200"))
	if compute.CodeOf(r.Refusal) != compute.CodeInvalid || r.Refusal.Detail != "unknown_profile" {
		t.Errorf("refusal is %+v", r.Refusal)
	}
	if _, err := command.DecodeResult([]byte{0xff}); err == nil {
		t.Error("no result was decoded")
	}
	if _, err := command.DecodeResult([]byte{0xa1, 0x18, 0x63, 0x01}); err != nil {
		t.Errorf("a newer node's result cannot be read: %v", err)
	}
}

func TestUndecodableEntryStopsTheNode(t *testing.T) {
	f := fsm.New()
	defer func() {
		p, _ := recover().(*fsm.PoisonError)
		if p == nil || p.Index != 7 || p.Command != "" || !strings.Contains(p.Error(), "this version cannot read it") {
			t.Errorf("recovered %v", p)
		}
	}()
	f.ApplyFrames(7, []byte{200, 1, 0, 0, 0, 1, 0xa0})
}

// FuzzApply applies every entry that can be decoded: it leaves a valid state.
func FuzzApply(f *testing.F) {
	add := func(cmd command.Command) {
		frame, err := command.Encode(cmd)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(frame)
	}
	for _, c := range command.All() {
		add(c.Command)
	}
	add(newWorld(f).python("t4"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cmd, rest, err := command.Decode(data)
		if err != nil {
			return
		}
		w := newWorld(t)
		w.index++
		w.fsm.ApplyFrames(w.index, data[:len(data)-len(rest)])
		if err := w.view().Check(); err != nil {
			t.Errorf("%T %+v: %v", cmd, cmd, err)
		}
	})
}

func FuzzRestore(f *testing.F) {
	f.Add(full(f).snapshot())
	f.Add([]byte("BERTHFSM\x00\x01"))
	f.Fuzz(func(t *testing.T, data []byte) {
		restored, err := restore(data)
		if err == nil && restored.View().Check() != nil {
			t.Error("a broken state was restored")
		}
	})
}
