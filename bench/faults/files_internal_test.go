package faults

import (
	"net/http"
	"testing"

	"berth/api/client"
)

// TestListed says which files may be listed, and which may be missing from a list.
func TestListed(t *testing.T) {
	for _, test := range []struct {
		may               []int
		listed, notListed bool
	}{
		{[]int{0}, false, true}, {[]int{3}, true, false}, {[]int{3, 4}, true, false}, {[]int{3, 0}, true, true}, {[]int{0, 5}, true, true},
	} {
		if got, gone := mayBeListed(test.may, true), mayBeListed(test.may, false); got != test.listed || gone != test.notListed {
			t.Errorf("%v: listed %t, not listed %t", test.may, got, gone)
		}
	}
}

// TestFileViolations reads files as they may be, and as they may not.
func TestFileViolations(t *testing.T) {
	absent, down := &client.Error{Status: http.StatusNotFound}, &client.Error{Status: http.StatusServiceUnavailable}
	const key = "client-1/2"
	for _, test := range []struct {
		name string
		may  []int
		got  []byte
		err  error
		want string
	}{
		{"as stored", []int{3}, fileContent(key, 3), nil, ""},
		{"lost", []int{3}, nil, absent, "lost"},
		{"deleted", []int{0}, nil, absent, ""},
		{"deleted and back", []int{0}, fileContent(key, 3), nil, "wrong file"},
		{"never stored", []int{0}, nil, nil, "wrong file"},
		{"an older one", []int{4}, fileContent(key, 3), nil, "wrong file"},
		{"another key's", []int{3}, fileContent("client-1/3", 3), nil, "wrong file"},
		{"cut", []int{3}, fileContent(key, 3)[1:], nil, "wrong file"},
		{"in doubt, before", []int{3, 4}, fileContent(key, 3), nil, ""},
		{"in doubt, after", []int{3, 4}, fileContent(key, 4), nil, ""},
		{"in doubt, neither", []int{3, 4}, nil, absent, "lost"},
		{"delete in doubt", []int{3, 0}, nil, absent, ""},
		{"no answer", []int{3}, nil, down, ""},
	} {
		v := fileViolation(key, test.may, test.got, test.err)
		if got := v; (got == nil) != (test.want == "") || got != nil && got.What != test.want {
			t.Errorf("%s: %v, want %q", test.name, v, test.want)
		}
	}
	if n := len(fileContent("client-1/0", fileVersions)); n < largeFileSize {
		t.Errorf("the large file has %d bytes", n)
	}
}
