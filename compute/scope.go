package compute

import "slices"

// Scope is a part of the API that an API key may be restricted to.
type Scope string

// The scopes. A scope to write includes the one to read.
const (
	ScopeNone            Scope = "" // Any key has it.
	ScopeExecutionsRead  Scope = "executions:read"
	ScopeExecutionsWrite Scope = "executions:write"
	ScopeBillingRead     Scope = "billing:read"
	ScopeStorage         Scope = "storage"
	ScopeInference       Scope = "inference"
	ScopeAdmin           Scope = "admin" // Everything else: members, keys, secrets, the cluster.
)

// Scopes returns the scopes that a key can be restricted to.
func Scopes() []Scope {
	return []Scope{
		ScopeExecutionsRead, ScopeExecutionsWrite, ScopeBillingRead, ScopeStorage, ScopeInference, ScopeAdmin,
	}
}

// ScopesOf returns the scopes with some names.
func ScopesOf(names []string) []Scope {
	var out []Scope
	for _, name := range names {
		out = append(out, Scope(name))
	}
	return out
}

// ScopeNames returns the names of scopes, never nil.
func ScopeNames(scopes []Scope) []string {
	out := make([]string, len(scopes))
	for i, s := range scopes {
		out[i] = string(s)
	}
	return out
}

// Allows reports whether a key with these scopes may do something that needs one. Keys
// without scopes may do everything.
func Allows(scopes []Scope, needed Scope) bool {
	return len(scopes) == 0 || needed == ScopeNone || slices.Contains(scopes, needed) ||
		needed == ScopeExecutionsRead && slices.Contains(scopes, ScopeExecutionsWrite)
}

// Within reports whether a key with the scopes inner may do nothing that one with the
// scopes outer may not.
func Within(inner, outer []Scope) bool {
	if len(outer) == 0 {
		return true
	}
	for _, s := range inner {
		if !Allows(outer, s) {
			return false
		}
	}
	return len(inner) > 0
}
