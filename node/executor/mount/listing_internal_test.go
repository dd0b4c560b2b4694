package mount

import (
	"fmt"
	"net/http"
	"slices"
	"syscall"
	"testing"
)

// TestKeysWithoutNames lists a directory in which keys have no name, on pages of their own
// too, without them.
func TestKeysWithoutNames(t *testing.T) {
	t.Parallel()
	pages := map[string]string{
		"":       `<Contents><Key>a/</Key></Contents><NextContinuationToken>second</NextContinuationToken>`,
		"second": `<CommonPrefixes><Prefix>a//</Prefix></CommonPrefixes><NextContinuationToken>third</NextContinuationToken>`,
		"third":  `<Contents><Key>a/b</Key></Contents><CommonPrefixes><Prefix>a/c/</Prefix></CommonPrefixes>`,
	}
	b := served(t, usual(), func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "<ListBucketResult>%s</ListBucketResult>", pages[r.URL.Query().Get("continuation-token")])
	})
	l := &listing{m: &tree{bucket: b, listed: make(map[string]seen)}, prefix: "a/"}
	var names []string
	for l.HasNext() {
		e, errno := l.Next()
		if errno != syscall.Errno(0) {
			t.Fatal(errno)
		}
		names = append(names, e.Name)
	}
	if !slices.Equal(names, []string{"b", "c"}) {
		t.Errorf("it has %q", names)
	}
}
