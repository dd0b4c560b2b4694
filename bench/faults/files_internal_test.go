package faults

import (
	"net/http"
	"testing"

	"berth/api/client"
)

// TestFileViolations holds that a read that shows another file than there may be is a violation, and no
// other read.
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
