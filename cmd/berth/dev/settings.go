package dev

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"berth/node/config"
)

// Setting is one setting that every node of a cluster gets.
type Setting struct {
	Key   string `json:"key"`   // As in berth.yaml: "billing.mode".
	Value string `json:"value"` // YAML.
}

// ownSettings are the settings that a cluster gives each of its nodes, and the
// sections of such settings.
func ownSettings() []string {
	return []string{
		"name", "role", "data_dir", "advertise", "api.addr", "rpc.addr", "gossip.addr", "join", "gpus", "metrics.addr",
		"s3.addr",
	}
}

// ParseSettings returns the settings of texts, each KEY=VALUE, and every
// mistake in them.
func ParseSettings(texts []string) ([]Setting, error) {
	var settings []Setting
	var faults []error
	for _, text := range texts {
		key, value, found := strings.Cut(text, "=")
		key = strings.TrimSpace(key)
		owned := slices.ContainsFunc(ownSettings(), func(own string) bool {
			return key == own || strings.HasPrefix(key, own+".")
		})
		switch {
		case !found || key == "":
			faults = append(faults, fmt.Errorf("--set: %q is not KEY=VALUE, as in billing.mode=meter", text))
		case key == "gpus" || strings.HasPrefix(key, "gpus."):
			faults = append(faults, fmt.Errorf("--set: %s differs from node to node: use --gpus", key))
		case key == "api.tls" || strings.HasPrefix(key, "api.tls."):
			faults = append(faults, fmt.Errorf("--set: %s: berth dev serves plain HTTP on this machine; "+
				"start berth node for TLS", key))
		case owned:
			faults = append(faults, fmt.Errorf("--set: %s differs from node to node: berth dev sets it", key))
		case value == "":
			settings = append(settings, Setting{Key: key}) // Removes an earlier one.
		default:
			settings = append(settings, Setting{Key: key, Value: value})
		}
	}
	faults = append(faults, checkSettings(merged(nil, settings)))
	return settings, errors.Join(faults...)
}

// checkSettings returns why a node would refuse the settings, which may need each
// other.
func checkSettings(settings []Setting) error {
	text, err := withSettings(nil, settings)
	if err != nil {
		return fmt.Errorf("--set: %w", err)
	}
	var faults []error
	for _, f := range config.CheckText(text) {
		fault := *f
		fault.Line = 0
		faults = append(faults, fmt.Errorf("--set: %w; berth node --help lists the settings", &fault))
	}
	return errors.Join(faults...)
}

// merged returns the settings with changes applied: the last one of a key
// counts, and one without a value removes it.
func merged(settings, changes []Setting) []Setting {
	out := slices.Clone(settings)
	for _, c := range changes {
		out = slices.DeleteFunc(out, func(s Setting) bool { return s.Key == c.Key })
		if c.Value != "" {
			out = append(out, c)
		}
	}
	return out
}

// withSettings returns the text of a berth.yaml with the settings.
func withSettings(text []byte, settings []Setting) ([]byte, error) {
	if len(settings) == 0 {
		return text, nil
	}
	var file map[string]any
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if file == nil {
		file = map[string]any{}
	}
	for _, s := range settings {
		var value any
		if err := yaml.Unmarshal([]byte(s.Value), &value); err != nil {
			return nil, fmt.Errorf("%s: %q is not a YAML value", s.Key, s.Value)
		}
		if err := put(file, strings.Split(s.Key, "."), value); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Key, err)
		}
	}
	out, err := yaml.Marshal(file)
	if err != nil {
		return nil, fmt.Errorf("write configuration: %w", err)
	}
	return append([]byte("# Written by berth dev at each start.\n"), out...), nil
}

// put sets the value at the path in sections of a file.
func put(file map[string]any, path []string, value any) error {
	for _, name := range path[:len(path)-1] {
		section, known := file[name]
		if !known {
			section = map[string]any{}
			file[name] = section
		}
		inner, ok := section.(map[string]any)
		if !ok {
			return fmt.Errorf("%s is not a section", name)
		}
		file = inner
	}
	file[path[len(path)-1]] = value
	return nil
}
