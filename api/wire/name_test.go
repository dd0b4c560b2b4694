package wire_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"berth/api/wire"
)

// TestNames refuses names in every body that people give one in if they are blank, have control
// characters or turn text around, and takes others.
func TestNames(t *testing.T) {
	for _, body := range []struct {
		name string
		into func() any
		text string // With %s in place of the name.
		loc  string
	}{
		{"key", func() any { return new(wire.NewKey) }, `{"name":%s}`, "[body name]"},
		{"own key", func() any { return new(wire.NewUserKey) }, `{"key_name":%s}`, "[body key_name]"},
		{"organization", func() any { return new(wire.NewOrg) }, `{"name":%s,"slug":"lab"}`, "[body name]"},
		{"organization's name", func() any { return new(wire.OrgChange) }, `{"name":%s,"slug":"lab"}`, "[body name]"},
		{"user", func() any { return new(wire.NewUser) }, `{"email":"a@b.c","org_slug":"lab","full_name":%s}`, "[body full_name]"},
		{"user's organization", func() any { return new(wire.NewUser) }, `{"email":"a@b.c","org_slug":"lab","org_name":%s}`, "[body org_name]"},
		{"sign-up", func() any { return new(wire.SignUp) }, `{"email":"a@b.c","password":"0123456789","full_name":%s}`, "[body full_name]"},
		{"its organization", func() any { return new(wire.SignUp) }, `{"email":"a@b.c","password":"0123456789","org_name":%s}`, "[body org_name]"},
		{"tag", func() any { return new(wire.PythonStart) }, `{"code":"1","tags":["a",%s]}`, "[body tags 1]"},
		{"file", func() any { return new(wire.PythonStart) }, `{"code":"1","file_name":%s}`, "[body file_name]"},
		{"job type", func() any { return new(wire.ImageStart) }, `{"docker_image_ref":"a","job_type":%s}`, "[body job_type]"},
		{"Compose job type", func() any { return new(wire.ComposeStart) }, `{"compose_file_code":"a","job_type":%s}`, "[body job_type]"},
		{
			"deployment", func() any { return new(wire.DeploymentCreate) },
			`{"hf_model_id":"a/b","target_rps":1,"target_latency_p95_ms":1,"stabilisation_window":1,"name":%s}`, "[body name]",
		},
		{"grant", func() any { return new(wire.Grant) }, `{"org":"lab","credits":1,"reason":%s}`, "[body reason]"},
	} {
		for name, good := range map[string]bool{
			"Müller": true, "Δίκτυο 1": true, "לאב": true, " ": false, "\u200b": false, "\u3164": false,
			"a\x1b[2J": false, "a\nb": false, "a\u009b": false, "ab\u202egnp": false, "\u2066a": false,
		} {
			quoted, err := json.Marshal(name)
			if err != nil {
				t.Fatal(err)
			}
			f := new(wire.Faults)
			wire.Decode(fmt.Appendf(nil, body.text, quoted), body.into(), f)
			var locs []string
			for _, fault := range f.Detail {
				locs = append(locs, fmt.Sprint(fault.Loc))
			}
			if want := map[bool]string{false: body.loc}[good]; strings.Join(locs, " ") != want {
				t.Errorf("%s %+q: faults at %v, want %q", body.name, name, locs, want)
			}
		}
	}
	for _, address := range []string{"a\u202e@b.c", "a\x7f@b.c"} {
		quoted, err := json.Marshal(address)
		f := new(wire.Faults)
		if wire.Decode(fmt.Appendf(nil, `{"email":%s}`, quoted), new(wire.NewInvite), f); err != nil || len(f.Detail) != 1 {
			t.Errorf("%+q is an address", address)
		}
	}
}
