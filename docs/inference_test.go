package docs_test

import (
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"berth/node/inference/engine"
)

// TestEngineKeys holds that inference.md describes every key of an engine, in the order of
// the code, with its default.
func TestEngineKeys(t *testing.T) {
	_, document, _ := strings.Cut(mustRead(t, "inference.md"), "\n## Engines\n")
	document, _, _ = strings.Cut(document, "\n## ")
	var documented []string
	defaults := make(map[string]string)
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]+) \\| [^|]+ \\|$").FindAllStringSubmatch(document, -1) {
		documented = append(documented, row[1])
		defaults[row[1]] = row[2]
	}
	var keys []string
	for field := range reflect.TypeFor[engine.Engine]().Fields() {
		keys = append(keys, field.Tag.Get("koanf"))
	}
	if !slices.Equal(documented, keys) {
		t.Errorf("the keys are %q, and inference.md has %q", keys, documented)
	}
	least := engine.Engine{Name: "x", Command: []string{"x"}, Formats: []string{engine.GGUF}}
	set, err := engine.NewSet([]engine.Engine{least})
	if err != nil {
		t.Fatal(err)
	}
	e, _ := set.Get("x")
	for key, want := range map[string]string{
		"concurrency": strconv.Itoa(e.Concurrency), "start_limit": strings.TrimSuffix(e.StartLimit.String(), "0s"), "gpu": "`false`",
	} {
		if defaults[key] != want {
			t.Errorf("the default of %s is %s, and inference.md says %q", key, want, defaults[key])
		}
	}
	for i, key := range keys {
		required := least
		reflect.ValueOf(&required).Elem().Field(i).SetZero()
		if needed := required.Validate() != nil; needed != (defaults[key] == "required") {
			t.Errorf("%s is required: %t, and inference.md says %q", key, needed, defaults[key])
		}
	}
}
