package engine

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"berth/compute"
)

var (
	flagName = regexp.MustCompile(`^--?[a-zA-Z][a-zA-Z0-9-]*$`)

	ints    = regexp.MustCompile(`^-?[0-9]{1,12}$`)
	numbers = regexp.MustCompile(`^-?[0-9]{1,12}(\.[0-9]{1,12})?$`)
	words   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)
)

// kinds returns the values that arguments may have. None can hold a path, a URL or an
// address.
func kinds() map[string]*regexp.Regexp {
	return map[string]*regexp.Regexp{"int": ints, "number": numbers, "word": words}
}

// Args splits the text of a user's arguments and checks them. Quotes are no part of
// it: no allowed value needs them.
func (e *Engine) Args(text string) ([]string, error) {
	if strings.ContainsAny(text, "\x00\n\r") {
		return nil, invalid("vllm_args is one line")
	}
	return e.check(strings.Fields(text))
}

// Takes reports whether users may add an argument.
func (e *Engine) Takes(name string) bool {
	_, ok := e.kindOf(name)
	return ok
}

// check returns arguments as the engine gets them: values are apart from their names,
// which every shipped engine takes.
func (e *Engine) check(args []string) ([]string, error) {
	if len(args) > compute.MaxEngineArgs {
		return nil, invalid("vllm_args has more than %d arguments", compute.MaxEngineArgs)
	}
	var out, seen []string
	for i := 0; i < len(args); i++ {
		name, value, joined := strings.Cut(args[i], "=")
		kind, ok := e.kindOf(name)
		switch {
		case !ok:
			return nil, invalid("vllm_args: the engine %s does not take %q from users; it takes: %s",
				e.Name, compute.Clip(args[i], 64), strings.Join(e.Allow, " "))
		case slices.Contains(seen, name):
			return nil, invalid("vllm_args: %s is given twice", name)
		case kind == "" && joined:
			return nil, invalid("vllm_args: %s has no value", name)
		}
		seen = append(seen, name)
		if kind == "" {
			out = append(out, name)
			continue
		}
		if !joined {
			if i++; i >= len(args) {
				return nil, invalid("vllm_args: %s needs a value", name)
			}
			value = args[i]
		}
		if !kinds()[kind].MatchString(value) {
			return nil, invalid("vllm_args: the value of %s is not of the kind %s", name, kind)
		}
		out = append(out, name, value)
	}
	return out, nil
}

// kindOf returns the kind of an argument's value, "" for none.
func (e *Engine) kindOf(name string) (kind string, ok bool) {
	for _, entry := range e.Allow {
		if allowed, kind, _ := strings.Cut(entry, "="); allowed == name {
			return kind, true
		}
	}
	return "", false
}

// slotFlags returns the arguments that set how many requests engines answer at once.
func slotFlags() []string {
	return []string{"--parallel", "--max-num-seqs", "--max-running-requests"}
}

// maxPlaces bounds what a user's argument says.
const maxPlaces = 1 << 16

// Places returns how many requests a replica with a user's checked arguments answers at once:
// as many as one of slotFlags says, or else Concurrency. Numbers below 1 leave it to the engine.
func (e *Engine) Places(args []string) int {
	for i := 0; i+1 < len(args); i++ {
		if kind, ok := e.kindOf(args[i]); !ok || kind != "int" || !slices.Contains(slotFlags(), args[i]) {
			continue
		}
		if n, err := strconv.Atoi(args[i+1]); err == nil && n > 0 {
			return min(n, maxPlaces)
		}
	}
	return e.Concurrency
}

func invalid(format string, args ...any) error {
	return compute.Errorf(compute.CodeInvalid, format, args...).Named("vllm_args")
}
