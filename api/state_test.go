package api_test

import (
	"testing"

	"berth/api/wire"
)

// TestState holds that a node tells what its replica is, and that a change
// changes its hash.
func TestState(t *testing.T) {
	w := newWorld(t)
	var before, after wire.State
	w.mustDo("GET", "/admin/state?check=true", rootToken, nil, &before)
	if !before.Checked || before.Detail != "" || before.Index == 0 || len(before.Hash) != 64 {
		t.Errorf("got %+v", before)
	}
	w.mustDo("POST", "/billing/grant", rootToken, map[string]any{"org": "ada-lab", "credits": 5}, nil)
	w.mustDo("GET", "/admin/state", rootToken, nil, &after)
	if after.Checked || after.Hash == before.Hash || after.Granted-before.Granted != 5_000_000 ||
		after.Balance != after.Granted-after.Charged || after.LedgerEntries != before.LedgerEntries+1 {
		t.Errorf("got %+v after %+v", after, before)
	}
	w.want(403, "", "GET", "/admin/state", w.bobKey, nil)
}
