package sweep

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"time"

	"berth/bench/faults/world"
)

// arm sets a trial's action on a node.
func (s *sweep) arm(n *world.Node, t Trial) error { return s.write(n, t.Point+"="+t.Action) }

// disarm removes the rules from all nodes.
func (s *sweep) disarm() error {
	var errs []error
	for _, n := range s.world.Nodes {
		errs = append(errs, s.write(n, ""))
	}
	return errors.Join(errs...)
}

// write replaces all rules of a node.
func (s *sweep) write(n *world.Node, rules string) error {
	fresh := s.rules(n) + ".new"
	if err := os.WriteFile(fresh, []byte(rules), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, s.rules(n))
}

// reached returns the name of the node where the trial's action has happened
// since logSizes was called, "" for none.
func (s *sweep) reached(t Trial, logSizes map[string]int) (string, error) {
	for _, n := range s.world.Nodes {
		text, err := os.ReadFile(s.hits(n))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		for line := range strings.Lines(string(text[min(logSizes[n.Name], len(text)):])) {
			if strings.HasSuffix(line, " "+t.Point+" "+t.Action+"\n") {
				return n.Name, nil
			}
		}
	}
	return "", nil
}

// logSizes returns the current sizes of the nodes' failpoint logs.
func (s *sweep) logSizes() map[string]int {
	logSizes := make(map[string]int)
	for _, n := range s.world.Nodes {
		if info, err := os.Stat(s.hits(n)); err == nil {
			logSizes[n.Name] = int(info.Size())
		}
	}
	return logSizes
}

// await waits up to limit until the trial's point is reached. It returns the
// name of the node, "" if the point was not reached.
func (s *sweep) await(ctx context.Context, t Trial, logSizes map[string]int, limit time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(pollEvery)
	defer ticker.Stop()
	for {
		at, err := s.reached(t, logSizes)
		if at != "" || err != nil {
			return at, err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return "", nil
		}
	}
}
