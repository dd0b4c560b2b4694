package compute_test

import (
	"encoding"
	"fmt"
	"strings"
	"testing"

	"berth/compute"
)

// enumeration is one of the small types with named values.
type enumeration struct {
	values int // The number of values; the next value has no name.
	make   func(v uint8) encoding.TextMarshaler
	parse  func(text []byte) (encoding.TextMarshaler, error)
}

// enum returns the enumeration of type E.
func enum[E ~uint8, P interface {
	*E
	encoding.TextUnmarshaler
}](values int) enumeration {
	return enumeration{
		values: values,
		make:   func(v uint8) encoding.TextMarshaler { return any(E(v)).(encoding.TextMarshaler) },
		parse: func(text []byte) (encoding.TextMarshaler, error) {
			var e E
			err := P(&e).UnmarshalText(text)
			return any(e).(encoding.TextMarshaler), err
		},
	}
}

// TestEnumerations checks that every value has a unique name that parses back
// to it, and that there are as many values as names: a constant without a name,
// or a name without a constant, fails here.
func TestEnumerations(t *testing.T) {
	tests := map[string]enumeration{
		"Status":     enum[compute.Status](int(compute.StatusCancelled) + 1),
		"Kind":       enum[compute.Kind](int(compute.KindReplica) + 1),
		"Network":    enum[compute.Network](int(compute.NetworkNone) + 1),
		"Health":     enum[compute.Health](int(compute.HealthMissing) + 1),
		"Role":       enum[compute.Role](int(compute.RoleWorker) + 1),
		"NodeState":  enum[compute.NodeState](int(compute.NodeDown) + 1),
		"OrgRole":    enum[compute.OrgRole](int(compute.OrgOwner) + 1),
		"Objective":  enum[compute.Objective](int(compute.ObjectiveCheapest) + 1),
		"Restart":    enum[compute.Restart](int(compute.RestartNever) + 1),
		"Reason":     enum[compute.Reason](compute.Reasons),
		"LedgerKind": enum[compute.LedgerKind](int(compute.LedgerFork) + 1),
	}
	for name, e := range tests {
		t.Run(name, func(t *testing.T) {
			seen := map[string]bool{}
			for v := range e.values {
				value := e.make(uint8(v))
				text, err := value.MarshalText()
				if err != nil || seen[string(text)] || strings.HasPrefix(string(text), "unknown") {
					t.Errorf("value %d is %q, %v", v, text, err)
				}
				seen[string(text)] = true
				if string(text) != fmt.Sprint(value) {
					t.Errorf("value %d is %q as text and %v as a string", v, text, value)
				}
				if got, err := e.parse(text); err != nil || got != value {
					t.Errorf("%q came back as %v, %v", text, got, err)
				}
			}
			if text, _ := e.make(uint8(e.values)).MarshalText(); string(text) != fmt.Sprintf("unknown_%d", e.values) {
				t.Errorf("value %d, which does not exist, is %q", e.values, text)
			}
			for _, text := range []string{"nonsense", "unknown_0", "Queued "} {
				if _, err := e.parse([]byte(text)); err == nil {
					t.Errorf("%q is accepted", text)
				}
			}
		})
	}
}

func TestTerminalStatuses(t *testing.T) {
	terminal := 0
	for v := range compute.Statuses {
		s := compute.Status(v)
		switch s {
		case compute.StatusPending, compute.StatusQueued, compute.StatusStarting, compute.StatusRunning:
			if s.Terminal() {
				t.Errorf("%v is terminal", s)
			}
		default:
			if !s.Terminal() {
				t.Errorf("%v is not terminal", s)
			}
			terminal++
		}
	}
	if terminal != 5 {
		t.Errorf("%d terminal statuses, want 5", terminal)
	}
}

func TestSchedulable(t *testing.T) {
	tests := []struct {
		node compute.Node
		want bool
	}{
		{compute.Node{}, true},
		{compute.Node{Drained: true}, false},
		{compute.Node{State: compute.NodeDown}, false},
	}
	for _, tt := range tests {
		if got := tt.node.Schedulable(); got != tt.want {
			t.Errorf("%+v: %v", tt.node, got)
		}
	}
}

func TestPlanEmpty(t *testing.T) {
	if !(compute.Plan{}).Empty() {
		t.Error("nothing is something")
	}
	if (compute.Plan{Waiting: make([]compute.Waiting, 1)}).Empty() || (compute.Plan{Assignments: make([]compute.Assignment, 1)}).Empty() {
		t.Error("something is nothing")
	}
}

func TestAvailable(t *testing.T) {
	a := compute.Account{Balance: 7 * compute.Credit, Held: 2 * compute.Credit}
	if got := a.Available(); got != 5*compute.Credit {
		t.Errorf("got %s, want 5", got)
	}
}
