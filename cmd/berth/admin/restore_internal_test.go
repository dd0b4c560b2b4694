package admin

import (
	"strings"
	"testing"

	"berth/node/repair"
)

// TestRestoreNamesEarlierData holds that a restore on a replaced machine, which has no earlier
// data, names none.
func TestRestoreNamesEarlierData(t *testing.T) {
	for _, dir := range []string{"", "/var/lib/berth/quarantine/1"} {
		var out strings.Builder
		if err := printRestore(&out, repair.Restore{Done: true, SetAside: dir}, "/var/lib/berth"); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(out.String(), "Its earlier data is in "+dir+"\n"); got != (dir != "") ||
			!strings.HasSuffix(out.String(), "\nStart this server, and once it answers the others.\n") {
			t.Errorf("set aside %q: %s", dir, out.String())
		}
	}
}
