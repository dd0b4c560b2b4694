package storage

import (
	"errors"
	"testing"

	"berth/compute"
)

func TestTooFew(t *testing.T) {
	full := []answer{{err: compute.Errorf(compute.CodeNoSpace, "The disk is full.")}}
	tests := map[string]struct {
		taken, wanted int
		failed        []answer
		code          compute.Code
		message       string
	}{
		"no node known":  {0, 0, nil, compute.CodeUnavailable, "Only 0 of 1 nodes could take the data: no other node is up."},
		"the other down": {1, 2, nil, compute.CodeUnavailable, "Only 1 of 2 nodes could take the data: no other node is up."},
		"no answer": {
			1, 2,
			[]answer{{err: errors.New("timed out")}},
			compute.CodeUnavailable,
			"Only 1 of 2 nodes could take the data: timed out",
		},
		"full": {0, 1, full, compute.CodeNoSpace, "The disks are full: only 0 of 1 nodes could take the data: no_space: The disk is full."},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := tooFew(test.taken, test.wanted, test.failed)
			if compute.CodeOf(err) != test.code || compute.MessageOf(err) != test.message {
				t.Errorf("got %v: %q", compute.CodeOf(err), compute.MessageOf(err))
			}
		})
	}
}
