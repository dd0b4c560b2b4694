package api_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"berth/api/wire"
	"berth/compute"
)

// masterPrefix begins, and is, what fakeMaster seals.
const masterPrefix = "key 1"

// fakeMaster is a master key that every server has and that has one sealing key.
type fakeMaster struct{}

func (fakeMaster) Add(context.Context) (now, next []byte, err error) {
	return []byte(masterPrefix), []byte(masterPrefix), nil
}

func (fakeMaster) Use(context.Context, []byte) error           { return nil }
func (fakeMaster) Retire(context.Context, []byte) (int, error) { return 3, nil }
func (fakeMaster) Reseal(_, _ []byte) ([]byte, error)          { return []byte(masterPrefix), nil }

// fakeVault turns values around, which shows where it was asked.
type fakeVault struct{}

func (fakeVault) NewKey(org compute.OrgID) (*compute.DataKey, error) {
	return &compute.DataKey{Org: org, Number: 1, Sealed: []byte(masterPrefix)}, nil
}

func (fakeVault) Seal(key *compute.DataKey, v *compute.Variable, value string) error {
	v.Key, v.Sealed = key.Number, []byte(value)
	slices.Reverse(v.Sealed)
	return nil
}

func (fakeVault) SealCallback(key *compute.DataKey, _ compute.OrgID, s *compute.CallbackSecret, value string) error {
	s.Key, s.Sealed = key.Number, []byte(value)
	slices.Reverse(s.Sealed)
	return nil
}

func (fakeVault) RotateKey(key *compute.DataKey) (*compute.DataKey, error) {
	next := *key
	next.Number++
	return &next, nil
}

func (fakeVault) RetireKeys(key *compute.DataKey) (*compute.DataKey, error) { return key, nil }

func (fakeVault) Reseal(key *compute.DataKey, v *compute.Variable) error {
	v.Key = key.Number
	return nil
}

func (fakeVault) ResealText(_ *compute.DataKey, sealed []byte, _ string) ([]byte, error) {
	return sealed, nil
}

func (fakeVault) ResealCallback(key *compute.DataKey, _ compute.OrgID, s *compute.CallbackSecret) error {
	s.Key = key.Number
	return nil
}

// TestVariables keeps, replaces and deletes variables, and shows no secret.
func TestVariables(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	const path = "/environment-variables"
	var kept wire.Variables
	w.mustDo("POST", path, w.bobKey, `{"environment_variables":[
		{"name":"TOKEN","value":"first"},{"key":"COLOUR","value":"green","is_secret":false}]}`, &kept)
	first := kept.Variables
	w.mustDo("POST", path, w.bobKey, `{"name":"TOKEN","value":"second"}`, &kept)
	if len(kept.Variables) != 2 || kept.Variables[0].Value != "green" || kept.Variables[1].Value != "****" ||
		kept.Variables[1].ID != first[1].ID {
		t.Errorf("got %+v after %+v", kept.Variables, first)
	}
	stored := w.variablesOfBob()
	if len(stored) != 2 || stored[1].Value != "" || string(stored[1].Sealed) != "dnoces" {
		t.Errorf("stored is %+v", stored)
	}
	if res := w.send("DELETE", path+"/"+uuidText(9), w.bobKey, nil); res.status != 404 {
		t.Errorf("an unknown variable is deleted: %d %s", res.status, res.body)
	}
	w.mustDo("DELETE", path+"/"+first[0].ID.String(), w.bobKey, nil, nil)
	var deleted wire.DeletedVariables
	w.mustDo("DELETE", path, w.bobKey, nil, &deleted)
	if deleted.Deleted != 1 {
		t.Errorf("deleted %d", deleted.Deleted)
	}
	w.mustDo("DELETE", path, w.bobKey, nil, &deleted)
	w.mustDo("GET", path, w.bobKey, nil, &kept)
	if deleted.Deleted != 0 || len(kept.Variables) != 0 {
		t.Errorf("of nothing, deleted %d; kept %+v", deleted.Deleted, kept.Variables)
	}
}

// TestBadVariables refuses what cannot be a variable, whole.
func TestBadVariables(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	one := func(name, value string) string { return fmt.Sprintf(`{"name":%q,"value":%q}`, name, value) }
	long := strings.Repeat("x", compute.MaxVariableValue)
	for name, body := range map[string]string{
		"nothing":          `{}`,
		"an empty list":    `{"environment_variables":[]}`,
		"no value":         `{"name":"A"}`,
		"no name":          `{"value":"a"}`,
		"a digit first":    one("1A", "a"),
		"a hyphen":         one("A-B", "a"),
		"a line feed":      one("A\n", "a"),
		"Berth's own name": one("BERTH_TOKEN", "a"),
		"a long name":      one(strings.Repeat("A", 129), "a"),
		"a long value":     one("A", long+"x"),
		"a NUL":            one("A", "a\x00b"),
		"twice a name":     `{"environment_variables":[` + one("A", "a") + "," + one("A", "b") + `]}`,
		"two names":        `{"name":"A","key":"B","value":"a"}`,
		"both forms":       `{"name":"A","value":"a","environment_variables":[` + one("B", "b") + `]}`,
		"one bad of two":   `{"environment_variables":[` + one("A", "a") + "," + one("", "b") + `]}`,
		"a number":         `{"name":"A","value":1}`,
		"101 of them":      `{"environment_variables":[` + strings.Repeat(one("A", "a")+",", 100) + one("A", "a") + `]}`,
	} {
		res := w.send("POST", "/environment-variables", w.bobKey, body)
		if res.status != 422 {
			t.Errorf("%s: %d %s", name, res.status, res.body)
		}
		if strings.Contains(string(res.body), long) {
			t.Errorf("%s: the answer repeats the value", name)
		}
	}
	whole := make([]string, compute.MaxVariableBytes/compute.MaxVariableValue)
	for i := range whole {
		whole[i] = one(fmt.Sprint("W", i), long)
	}
	half := len(whole) / 2
	list := func(these []string) string { return `{"environment_variables":[` + strings.Join(these, ",") + `]}` }
	w.mustDo("POST", "/environment-variables", w.bobKey, list(whole[:half]), nil)
	w.mustDo("POST", "/environment-variables", w.bobKey, list(whole[:half]), nil) // In place of themselves.
	w.want(413, "variables_too_large", "POST", "/environment-variables", w.bobKey, list(whole[half:]))
	w.mustDo("DELETE", "/environment-variables", w.bobKey, nil, nil)
	for i := range compute.MaxVariables {
		w.mustDo("POST", "/environment-variables", w.bobKey, one(fmt.Sprint("A", i), long[:i+1]), nil)
	}
	if res := w.send("POST", "/environment-variables", w.bobKey, one("B", "b")); res.status != 409 {
		t.Errorf("one too many: %d %s", res.status, res.body)
	}
	w.mustDo("POST", "/environment-variables", w.bobKey, one("A1", long), nil)
	if n := len(w.variablesOfBob()); n != compute.MaxVariables {
		t.Errorf("kept %d", n)
	}
}

// TestBadVariablesAreLocated names the field that is wrong, and nothing else.
func TestBadVariablesAreLocated(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	long := strings.Repeat("x", compute.MaxVariableValue+1)
	for want, body := range map[string]string{
		`"loc":["body","value"],"msg":"Value error, a value has no NUL"`:    `{"name":"A","value":"a\u0000"}`,
		`"loc":["body","environment_variables",0,"value"],"msg":"Value err`: `{"environment_variables":[{"name":"A","value":"` + long + `"}]}`,
		`"loc":["body","name"],"msg":"Value error, a name has letters`:      `{"name":"1","value":"a\u0000"}`,
		`"type":"too_long","loc":["body","environment_variables"]`:          `{"environment_variables":[` + strings.Repeat(`{},`, 100) + `{}]}`,
	} {
		res := w.send("POST", "/environment-variables", w.bobKey, body)
		if text := string(res.body); res.status != 422 || !strings.Contains(text, want) || strings.Count(text, `"loc"`) != 1 {
			t.Errorf("%.80s: %d %s, want %s", body, res.status, text, want)
		}
	}
}

// variablesOfBob returns what the state has.
func (w *world) variablesOfBob() []*compute.Variable {
	view := w.machine.View()
	org, _ := view.OrgBySlug("bob-lab")
	user, _ := view.UserByEmail("bob@example.com")
	return view.Variables(org.ID, user.ID)
}

func (fakeVault) SealText(_ *compute.DataKey, text, context string) ([]byte, error) {
	sealed := []byte(context + text)
	slices.Reverse(sealed)
	return sealed, nil
}
