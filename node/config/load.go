package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"

	"berth/node/inference/engine"
)

// maxFile is the largest configuration file that is read.
const maxFile = 1 << 20

// Key is one setting: its name in the file, which determines the flag and the
// variable, and its help.
type Key struct {
	Path    string // As in "api.addr".
	Usage   string
	Default string // As text; "" for none.
}

// Env returns the variable that sets the key, as in BERTH_API_ADDR.
func (k Key) Env() string {
	return "BERTH_" + strings.ToUpper(strings.ReplaceAll(k.Path, ".", "_"))
}

// Keys returns every setting that flags and variables can give, in the order
// of Config's fields.
func Keys() []Key {
	var keys []Key
	defaults := Default()
	for _, l := range leaves(reflect.ValueOf(&defaults).Elem(), "") {
		if l.usage == "" || l.value.Type() == reflect.TypeFor[[]Mount]() ||
			l.value.Type() == reflect.TypeFor[[]engine.Engine]() {
			continue
		}
		keys = append(keys, Key{Path: l.path, Usage: l.usage, Default: textOf(l.value)})
	}
	return keys
}

// textOf returns a default as the help shows it.
func textOf(v reflect.Value) string {
	if v.IsZero() {
		return ""
	}
	return fmt.Sprint(v.Interface())
}

// Load returns the configuration from flags (by Key.Path), variables (as in
// os.Environ) and the file (none when ""), in that order of precedence, over
// the defaults. It returns all faults at once, each a *Fault.
func Load(file string, env []string, flags map[string]string) (Config, error) {
	var data []byte
	if file != "" {
		var err error
		if data, err = readFile(file); err != nil {
			return Config{}, err
		}
	}
	return parse(data, env, flags)
}

// Check returns every fault of a configuration file, in the order of its
// lines. An error means that the file could not be read.
func Check(file string) ([]*Fault, error) {
	data, err := readFile(file)
	if err != nil {
		return nil, err
	}
	return CheckText(data), nil
}

// CheckText is Check for the text of a configuration file.
func CheckText(data []byte) []*Fault {
	_, err := parse(data, nil, nil)
	faults := Faults(err)
	slices.SortStableFunc(faults, func(a, b *Fault) int {
		return cmp.Or(a.Line-b.Line, strings.Compare(a.Key, b.Key))
	})
	return faults
}

// Faults returns the faults that are joined in an error of Load.
func Faults(err error) []*Fault {
	var faults []*Fault
	switch e := err.(type) { //nolint:errorlint // Walks the joined errors itself.
	case nil:
	case *Fault:
		faults = append(faults, e)
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			faults = append(faults, Faults(one)...)
		}
	default:
		faults = append(faults, &Fault{Message: err.Error()})
	}
	return faults
}

func readFile(file string) ([]byte, error) {
	info, err := os.Stat(file)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("read configuration: %s is larger than %d bytes", file, maxFile)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	return data, nil
}

// parse merges the sources and decodes each setting, so that each fault has its
// key, and its line if it comes from the file.
func parse(data []byte, env []string, flags map[string]string) (Config, error) {
	lines, err := keyLines(data)
	if err != nil {
		return Config{}, err
	}
	k := koanf.New(".")
	if err := k.Load(rawbytes.Provider(data), yaml.Parser()); err != nil {
		return Config{}, &Fault{Message: err.Error()}
	}
	cfg := Default()
	settings := leaves(reflect.ValueOf(&cfg).Elem(), "")
	faults := unknownKeys(lines, settings)
	override := environment(env)
	for path, value := range flags {
		override[path] = value
	}
	if err := k.Load(confmap.Provider(override, "."), nil); err != nil {
		return Config{}, fmt.Errorf("merge configuration: %w", err)
	}
	for _, l := range settings {
		if !k.Exists(l.path) {
			continue
		}
		if err := decode(k.Get(l.path), l.value.Addr().Interface()); err != nil {
			faults = append(faults, &Fault{Key: l.path, Message: err.Error()})
		}
	}
	unread := map[string]bool{}
	for _, f := range Faults(errors.Join(faults...)) {
		unread[f.Key] = true
	}
	for _, f := range Faults(cfg.Validate()) {
		if !unread[f.Key] {
			faults = append(faults, f)
		}
	}
	for _, f := range Faults(errors.Join(faults...)) {
		if _, overridden := override[f.Key]; !overridden && f.Line == 0 {
			f.Line = lines[f.Key]
		}
	}
	return cfg, errors.Join(faults...)
}

// leaf is one setting within a Config.
type leaf struct {
	path, usage string
	value       reflect.Value
}

// leaves returns the settings within the struct v.
func leaves(v reflect.Value, prefix string) []leaf {
	var all []leaf
	for i := range v.NumField() {
		field := v.Type().Field(i)
		path := prefix + field.Tag.Get("koanf")
		if field.Type.Kind() == reflect.Struct {
			all = append(all, leaves(v.Field(i), path+".")...)
			continue
		}
		all = append(all, leaf{path, field.Tag.Get("usage"), v.Field(i)})
	}
	return all
}

// environment returns the settings that variables give. It ignores variables
// that name no key, because executions and the client have some of their own.
func environment(env []string) map[string]any {
	byName := map[string]string{}
	for _, key := range Keys() {
		byName[key.Env()] = key.Path
	}
	settings := map[string]any{}
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		if path, ok := byName[name]; ok {
			settings[path] = value
		}
	}
	return settings
}

// decode sets the target of a pointer from a value of any source.
func decode(value, target any) error {
	if text, ok := value.(string); ok && text == "" {
		value = reflect.Zero(reflect.TypeOf(target).Elem()).Interface()
	}
	if text, ok := value.(string); ok {
		if list, isMap := target.(*map[string]float64); isMap {
			return decodeNumbers(text, list)
		}
	}
	d, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result:           target,
		TagName:          "koanf",
		WeaklyTypedInput: true,
		ErrorUnused:      true,
		ZeroFields:       true,
		DecodeHook: mapstructure.ComposeDecodeHookFunc(
			mapstructure.StringToTimeDurationHookFunc(),
			mapstructure.StringToSliceHookFunc(","),
		),
	})
	if err != nil {
		return fmt.Errorf("decode setting: %w", err)
	}
	if err := d.Decode(value); err != nil {
		return fmt.Errorf("%v is not a %s", value, kindOf(target))
	}
	return nil
}

// decodeNumbers parses a flag or variable such as a40=1.2,l4=0.5.
func decodeNumbers(text string, target *map[string]float64) error {
	list := map[string]float64{}
	for pair := range strings.SplitSeq(text, ",") {
		name, number, _ := strings.Cut(pair, "=")
		value, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil {
			return fmt.Errorf("%q is not NAME=NUMBER, as in a40=1.2", strings.TrimSpace(pair))
		}
		list[strings.TrimSpace(name)] = value
	}
	*target = list
	return nil
}

// kindOf returns a readable name of the type that target points to.
func kindOf(target any) string {
	switch target.(type) {
	case *int, *int64:
		return "whole number"
	case *float64:
		return "number"
	case *map[string]float64:
		return "list of numbers by name"
	case *[]string:
		return "list"
	case *[]Mount:
		return "list of mounts, each with name, path and ro"
	case *[]engine.Engine:
		return "list of engines, each with name, command and formats"
	case *bool:
		return "true or false"
	case *string:
		return "text"
	}
	return "duration such as 10s or 5m"
}

// keyLines returns the line of every key of a YAML mapping, sections included,
// by its path.
func keyLines(data []byte) (map[string]int, error) {
	lines := map[string]int{}
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return nil, &Fault{Message: err.Error()}
	}
	for _, doc := range file.Docs {
		collectLines(doc.Body, "", lines)
	}
	return lines, nil
}

func collectLines(node ast.Node, prefix string, lines map[string]int) {
	switch n := node.(type) {
	case *ast.MappingNode:
		for _, value := range n.Values {
			collectLines(value, prefix, lines)
		}
	case *ast.MappingValueNode:
		path := prefix + n.Key.GetToken().Value
		lines[path] = n.Key.GetToken().Position.Line
		collectLines(n.Value, path+".", lines)
	}
}

// unknownKeys returns a fault for each key of the file that is neither a
// setting nor a section.
func unknownKeys(lines map[string]int, settings []leaf) []error {
	known, lists := map[string]bool{}, map[string]bool{}
	for _, l := range settings {
		lists[l.path] = l.value.Kind() == reflect.Map
		for path := l.path; ; {
			known[path] = true
			i := strings.LastIndexByte(path, '.')
			if i < 0 {
				break
			}
			path = path[:i]
		}
	}
	var faults []error
	for path, line := range lines {
		if !known[path] && !lists[parentOf(path)] && !unknownParent(path, known) {
			faults = append(faults, &Fault{Key: path, Line: line, Message: "is not a setting"})
		}
	}
	return faults
}

// unknownParent reports whether a section above path is itself unknown, and so
// already reported.
func unknownParent(path string, known map[string]bool) bool {
	parent := parentOf(path)
	return parent != "" && !known[parent]
}

// parentOf returns the section that a path is in, "" for the file itself.
func parentOf(path string) string {
	return path[:max(strings.LastIndexByte(path, '.'), 0)]
}
