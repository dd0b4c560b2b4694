package compute_test

import (
	"testing"

	"berth/compute"
)

func TestScopes(t *testing.T) {
	const read, write, bill, admin = compute.ScopeExecutionsRead, compute.ScopeExecutionsWrite, compute.ScopeBillingRead, compute.ScopeAdmin
	type scopes = []compute.Scope
	for _, tt := range []struct {
		has    scopes
		needed compute.Scope
		allows bool
	}{
		{nil, admin, true},
		{scopes{read}, read, true},
		{scopes{read}, write, false},
		{scopes{write}, read, true},
		{scopes{bill}, read, false},
		{scopes{admin}, read, false},
		{scopes{bill}, compute.ScopeNone, true},
	} {
		if got := compute.Allows(tt.has, tt.needed); got != tt.allows {
			t.Errorf("%v allows %q: %t", tt.has, tt.needed, got)
		}
	}
	for _, tt := range []struct {
		inner, outer scopes
		within       bool
	}{
		{nil, nil, true},
		{scopes{admin}, nil, true},
		{nil, scopes{admin}, false},
		{scopes{read}, scopes{write}, true},
		{scopes{write}, scopes{read}, false},
		{scopes{read, bill}, scopes{bill, read, admin}, true},
		{scopes{bill, admin}, scopes{bill}, false},
	} {
		if got := compute.Within(tt.inner, tt.outer); got != tt.within {
			t.Errorf("%v is within %v: %t", tt.inner, tt.outer, got)
		}
	}
}
