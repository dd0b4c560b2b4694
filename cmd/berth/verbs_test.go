package main

import (
	"slices"
	"strings"
	"testing"

	"berth/cmd/berth/cli"
)

// TestVerbs walks the commands: a group that knows one of several verbs for the same thing accepts
// them all, and each command has one meaning.
func TestVerbs(t *testing.T) {
	root, groups := newRoot(), 0
	for _, group := range commandsBelow(root) {
		if !group.HasSubCommands() {
			continue
		}
		path := strings.Fields(group.CommandPath())[1:]
		taken := map[string]string{}
		for _, cmd := range group.Commands() {
			for _, name := range append([]string{cmd.Name()}, cmd.Aliases...) {
				if other := taken[name]; other != "" {
					t.Errorf("%s %s is both %s and %s", group.CommandPath(), name, other, cmd.Name())
				}
				taken[name] = cmd.Name()
			}
		}
		for _, verbs := range cli.Synonyms() {
			if !slices.ContainsFunc(verbs, func(verb string) bool { return taken[verb] != "" }) {
				continue
			}
			groups++
			for _, verb := range verbs {
				if cmd, _, err := root.Find(append(slices.Clone(path), verb)); err != nil || cmd == group || !slices.Contains(verbs, cmd.Name()) {
					t.Errorf("%s does not know %s, of %v", group.CommandPath(), verb, verbs)
				}
			}
		}
	}
	if groups < 30 {
		t.Errorf("%d groups have such verbs, which is too few", groups)
	}
	for line, want := range map[string]string{
		"keys ls": "list", "keys rm": "revoke", "keys delete": "revoke", "secret list": "ls", "secret remove": "rm", "orgs rm": "remove",
		"orgs delete": "delete", "admin org ls": "list", "admin node rm": "remove", "invite revoke": "rm", "storage list": "ls",
		"billing budget ls": "list", "admin price remove": "rm", "orgs callback-secret revoke": "rm",
	} {
		if cmd, _, err := root.Find(strings.Fields(line)); err != nil || cmd.Name() != want {
			t.Errorf("berth %s is %s, %v, want %s", line, cmd.Name(), err, want)
		}
	}
}

// TestAliasesAreHidden shows one name of each command in its help.
func TestAliasesAreHidden(t *testing.T) {
	if r := execute(t, "", "keys", "revoke", "--help"); r.Code != 0 || strings.Contains(r.Out, "Aliases") || strings.Contains(r.Out, " rm") {
		t.Errorf("%+v", r)
	}
}
