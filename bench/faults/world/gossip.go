package world

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// membersMetric is the number of nodes that a node's gossip sees alive, itself
// included.
const membersMetric = "berth_gossip_members"

// WaitGossip waits until the gossip of every node sees all nodes.
func (w *World) WaitGossip(ctx context.Context) error {
	for _, n := range w.machines() {
		why := error(nil)
		err := poll(ctx, "the gossip of "+n.Name, func() bool {
			why = w.gossips(ctx, n)
			return why == nil
		})
		if err != nil {
			return fmt.Errorf("%w: %w", err, why)
		}
	}
	return nil
}

// gossips returns an error that names the nodes that a node's gossip does not see.
func (w *World) gossips(ctx context.Context, n *Node) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.URL()+"/metrics", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	seen, err := gauge(answer.Body, membersMetric)
	if all := len(w.machines()); err == nil && int(seen) != all {
		err = fmt.Errorf("it sees %v of %d nodes", seen, all)
	}
	return err
}

// gauge returns the value of a metric without labels.
func gauge(from io.Reader, name string) (float64, error) {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, maxLine)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			return strconv.ParseFloat(value, 64)
		}
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	return 0, fmt.Errorf("there is no metric %s", name)
}
