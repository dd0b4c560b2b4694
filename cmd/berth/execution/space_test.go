package execution

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"berth/api/client"
	"berth/api/wire"
)

func TestSpaceFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "requirements.txt")
	if err := os.WriteFile(file, []byte("numpy\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		flags spaceFlags
		want  client.Start
		say   string // Part of the error.
	}{
		"nothing":      {spaceFlags{}, client.Start{}, ""},
		"requirements": {spaceFlags{requirements: file}, client.Start{Requirements: "numpy\n"}, ""},
		"no file":      {spaceFlags{requirements: file + "x"}, client.Start{}, "no such file"},
		"size":         {spaceFlags{scratch: "200g"}, client.Start{ScratchGB: 200}, ""},
		"no size":      {spaceFlags{scratch: "much"}, client.Start{}, "--scratch"},
		"memory":       {spaceFlags{scratchMemory: true}, client.Start{Scratch: "memory"}, ""},
		"volumes": {
			spaceFlags{volumes: []string{"a", "b:/data/b", "c:ro", "d:/work/d:ro"}},
			client.Start{Volumes: []wire.Volume{
				{Name: "a"}, {Name: "b", Path: "/data/b"}, {Name: "c", ReadOnly: true}, {Name: "d", Path: "/work/d", ReadOnly: true},
			}},
			"",
		},
		"no name":     {spaceFlags{volumes: []string{":/data"}}, client.Start{}, "--volume"},
		"not a path":  {spaceFlags{volumes: []string{"a:data"}}, client.Start{}, "--volume"},
		"not ro":      {spaceFlags{volumes: []string{"a:rw"}}, client.Start{}, "--volume"},
		"only ro":     {spaceFlags{volumes: []string{":ro"}}, client.Start{}, "--volume"},
		"empty words": {spaceFlags{volumes: []string{""}}, client.Start{}, "--volume"},
	} {
		var start client.Start
		err := test.flags.apply(&start)
		switch {
		case test.say == "" && (err != nil || !reflect.DeepEqual(start, test.want)):
			t.Errorf("%s: %+v, %v", name, start, err)
		case test.say != "" && (err == nil || !strings.Contains(err.Error(), test.say)):
			t.Errorf("%s: %v", name, err)
		}
	}
}
