package composefile_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"berth/composefile"
)

const internalText = `
services:
  web: {image: probe, networks: [front, back]}
  api: {image: probe, networks: {front: {aliases: [gateway]}, other: {aliases: [also]}}}
  db: {image: probe, networks: {back: {aliases: [database, "$$x"]}}}
  cache: {image: probe, networks: [back, "deep"]}
  plain: {image: probe}
networks:
  front: {}
  other: {driver: bridge}
  back: {internal: true}
  deep: {internal: "${DEEP}"}
  unused: {internal: true}
`

// TestInternalNetworks emits networks without a way out, and the one of all other services.
func TestInternalNetworks(t *testing.T) {
	type service struct {
		Networks map[string]struct{ Aliases []string }
		DNS      []string
		Mode     string `json:"network_mode"`
	}
	nets := []composefile.Network{
		{Name: "n0", Link: "l0", Subnet: "100.64.0.0/25", Labels: map[string]string{"slot": "1"}},
		{Name: "n1", Link: "l1", Subnet: "100.64.0.128/25"},
	}
	for _, tt := range []struct {
		outside  string
		internal []composefile.Network
		want     string // The networks of each service, "none" without.
	}{
		{
			"net", nets, "api: outside(also,gateway); cache: internal-0() internal-1(); db: internal-0($$x,database); plain: outside(); " +
				"web: internal-0() outside(); ",
		},
		{"net", nil, "api: outside(also,gateway); cache: none; db: none; plain: outside(); web: outside(); "},
		{
			"none", nets,
			"api: none; cache: internal-0() internal-1(); db: internal-0($$x,database); plain: none; web: internal-0(); ",
		},
	} {
		file, faults := composefile.Parse(internalText, map[string]string{"DEEP": "true"})
		if len(faults) > 0 || fmt.Sprint(file.Internal) != "[back deep]" {
			t.Fatal(faults)
		}
		images := map[string]composefile.Image{file.Images()[0]: {ID: "sha256:1"}}
		text, err := file.Emit(&composefile.Frame{
			Project: "p", Labels: map[string]string{"attempt": "1"}, Network: tt.outside, Internal: tt.internal, Images: images,
		})
		if err != nil {
			t.Fatal(err)
		}
		var out struct {
			Services map[string]service
			Networks map[string]map[string]any
		}
		if err := json.Unmarshal(text, &out); err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, name := range []string{"api", "cache", "db", "plain", "web"} {
			s := out.Services[name]
			var on []string
			leaves := false
			for network, config := range s.Networks {
				slices.Sort(config.Aliases)
				on = append(on, network+"("+strings.Join(config.Aliases, ",")+")")
				leaves = leaves || network == "outside"
			}
			if slices.Sort(on); s.Mode != "" {
				on = append(on, s.Mode)
			}
			if (len(s.DNS) > 0) != (!leaves && s.Mode == "") {
				t.Errorf("%s on %v asks the name servers %v", name, on, s.DNS)
			}
			got += name + ": " + strings.Join(on, " ") + "; "
		}
		if got != tt.want {
			t.Errorf("got  %s\nwant %s", got, tt.want)
		}
		for i, n := range tt.internal {
			made := out.Networks[fmt.Sprint("internal-", i)]
			if made["internal"] != true || made["name"] != n.Name || made["external"] != nil || !strings.Contains(fmt.Sprint(made["labels"]), "attempt:1") ||
				!strings.Contains(fmt.Sprint(made["driver_opts"]), "bridge.name:"+n.Link) || !strings.Contains(fmt.Sprint(made["ipam"]), n.Subnet) {
				t.Errorf("network %d is %v", i, made)
			}
		}
		if _, found := out.Networks["outside"]; found != (tt.outside != "none") || len(out.Networks) > 3 {
			t.Errorf("the networks are %v", out.Networks)
		}
	}
	everywhere := "services: {a: {image: probe}}\nnetworks: {default: {internal: true}}"
	if file, faults := composefile.Parse(everywhere, nil); len(faults) > 0 || fmt.Sprint(file.Internal) != "[default]" {
		t.Errorf("a default without a way out: %v", faults)
	}
	many := "services: {a: {image: probe, networks: [n0, n1, n2, n3, n4, n5, n6, n7, n8]}}\nnetworks:\n"
	for i := range composefile.MaxInternal + 1 {
		many += fmt.Sprintf("  n%d: {internal: true}\n", i)
	}
	if _, faults := composefile.Parse(many, nil); len(faults) != 1 || !strings.Contains(faults[0].Why, "8 internal networks") {
		t.Errorf("too many: %v", faults)
	}
}
