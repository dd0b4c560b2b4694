package edge_test

import (
	"testing"

	"berth/api/edge"
)

func TestTagsOfConditions(t *testing.T) {
	for _, test := range []struct {
		header            string
		any, strong, weak bool // For the tag a,b.
	}{
		{"*", true, false, false},
		{" * ", true, false, false},
		{`"a,b"`, false, true, true},
		{`W/"a,b"`, false, false, true},
		{`"x", "a,b"`, false, true, true},
		{`"x" ,W/"a,b", "y"`, false, false, true},
		{`,, "a,b",`, false, true, true},
		{`"x","a,b`, false, true, true},
		{"a,b", false, false, false},
		{`""`, false, false, false},
		{`W/""`, false, false, false},
		{"", false, false, false},
		{`"*"`, false, false, false},
		{`"x", *`, false, false, false},
		{`w/"a,b"`, false, false, false},
	} {
		all, strong, weak := edge.AnyTag(test.header), edge.NamesTag(test.header, "a,b", false), edge.NamesTag(test.header, "a,b", true)
		if all != test.any || strong != test.strong || weak != test.weak {
			t.Errorf("%q: any %t, strong %t, weak %t", test.header, all, strong, weak)
		}
	}
	if !edge.NamesTag("plain , other", "plain", false) || !edge.NamesTag("other,plain", "plain", false) || !edge.NamesTag(`""`, "", false) {
		t.Error("tags without quotes are not found")
	}
}
