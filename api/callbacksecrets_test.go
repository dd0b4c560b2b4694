package api_test

import (
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"berth/api/wire"
)

// TestCallbackSecrets sets, rotates and removes the secret of an organization, of which
// only the sealed form is in the state.
func TestCallbackSecrets(t *testing.T) {
	w := newWorld(t)
	w.upgrade()
	const path = "/orgs/ada-lab/callback-secret"
	w.mustDo("DELETE", path, w.adaKey, nil, nil)
	var first, second wire.MintedCallbackSecret
	w.mustDo("POST", path, w.adaKey, nil, &first)
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(first.Secret, "whsec_"))
	if err != nil || len(raw) != 32 || first.Number != 1 || first.ExpiresAt != nil {
		t.Errorf("made %+v, %v", first, err)
	}
	w.mustDo("POST", path, w.adaKey, nil, &second)
	var list []wire.CallbackSecret
	w.mustDo("GET", path, w.adaKey, nil, &list)
	if len(list) != 2 || list[0].Number != 2 || list[0].ExpiresAt != nil || list[1].ExpiresAt == nil || first.Secret == second.Secret {
		t.Errorf("after a rotation there are %+v", list)
	}
	org, _ := w.machine.View().OrgBySlug("ada-lab")
	for _, s := range org.Signing {
		if value := string(s.Sealed); strings.Contains(value, first.Secret) || strings.Contains(value, second.Secret) {
			t.Error("a value is in the state")
		}
		reversed := slices.Clone(s.Sealed)
		slices.Reverse(reversed)
		if got := string(reversed); got != first.Secret && got != second.Secret {
			t.Errorf("sealed is %q", got)
		}
	}
	w.mustDo("DELETE", path, w.adaKey, nil, nil)
	w.mustDo("GET", path, w.adaKey, nil, &list)
	if len(list) != 0 {
		t.Errorf("after the removal there are %+v", list)
	}
	w.want(404, "not_found", "POST", path, w.bobKey, nil)
}
