package fault

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Names of rules that are not points: the shift of the clock, and the number of
// entries between snapshots.
const (
	clockName    = "clock"
	snapshotName = "snapshot_every"
)

// action is the action of a rule.
type action uint8

const (
	actionExit action = iota
	actionPanic
	actionSleep
	actionError
	actionEIO
	actionENOSPC
)

// rule is one armed failpoint.
type rule struct {
	text   string // As given.
	action action
	pause  time.Duration // Duration of the action sleep.
	nth    int           // The hit that it applies to; 0 for each.
	hits   int
}

// armed is the parsed form of rules.
type armed struct {
	rules         map[string]*rule
	shift         time.Duration // Shift of the clock.
	snapshotEvery uint64        // In entries; 0 for the program's default.
}

// parse parses rules. The last rule with a name applies.
func parse(text string) (armed, error) {
	out := armed{rules: make(map[string]*rule)}
	for line := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' || r == '\n' }) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		name, what, _ := strings.Cut(line, "=")
		name, what = strings.TrimSpace(name), strings.TrimSpace(what)
		var err error
		switch name {
		case clockName:
			out.shift, err = time.ParseDuration(what)
		case snapshotName:
			out.snapshotEvery, err = strconv.ParseUint(what, 10, 64)
		default:
			out.rules[name], err = parseRule(name, what)
		}
		if err != nil {
			return armed{}, fmt.Errorf("fault %q: %w", line, err)
		}
	}
	return out, nil
}

// parseRule parses the action at a point.
func parseRule(name, what string) (*rule, error) {
	points := Points()
	at := slices.IndexFunc(points, func(p PointInfo) bool { return p.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("there is no point %q", name)
	}
	r := &rule{text: what}
	what, nth, counted := strings.Cut(what, "@")
	if counted {
		n, err := strconv.Atoi(nth)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q counts no hits: it is a number from 1 on", nth)
		}
		r.nth = n
	}
	kind, argument, _ := strings.Cut(what, ":")
	switch kind + ":" + argument {
	case "exit:":
		r.action = actionExit
	case "panic:":
		r.action = actionPanic
	case "error:":
		r.action = actionError
	case "error:EIO":
		r.action = actionEIO
	case "error:ENOSPC":
		r.action = actionENOSPC
	default:
		pause, err := time.ParseDuration(argument)
		if kind != "sleep" || err != nil {
			return nil, fmt.Errorf("no action %q: there are exit, panic, sleep:2s, error, error:EIO and error:ENOSPC", what)
		}
		r.action, r.pause = actionSleep, pause
	}
	if r.action >= actionError && !points[at].Fails {
		return nil, fmt.Errorf("%s cannot fail: it can exit, panic and sleep", name)
	}
	return r, nil
}
