package node

import (
	"context"
	"sync"
	"time"

	"github.com/fxamacker/cbor/v2"

	"berth/compute"
	"berth/loop"
	"berth/node/router"
)

// Times of sharing replicas among servers.
const (
	sharePeriod  = 500 * time.Millisecond // While a model is asked much.
	shareLeast   = 50 * time.Millisecond  // Between two questions to the others.
	shareTimeout = time.Second
)

// share keeps the router's figures of the other servers fresh while requests to
// models wait. Each server may always use an equal part of a model's places, and also
// those that the others do not need.
func (l modelLoads) share(ctx context.Context) error {
	loop.OnChange(ctx, sharePeriod, l.node.routes.Crowded, func() {
		if l.shareOnce(ctx) {
			loop.Sleep(ctx, shareLeast)
		}
	})
	return nil
}

// shareOnce asks the other servers what they have under way, if that is needed, and reports
// whether it was.
func (l modelLoads) shareOnce(ctx context.Context) (asked bool) {
	view := l.node.machine.View()
	var others []compute.NodeID
	for server := range view.Nodes() {
		if server.Role == compute.RoleServer && server.State == compute.NodeUp && server.ID != l.node.cluster.ID() {
			others = append(others, server.ID)
		}
	}
	var loads []map[compute.ExecutionID]int
	if asked = l.node.routes.Busy(); asked {
		loads = l.askDemand(ctx, others)
	}
	l.node.routes.SetDemand(view, len(others), loads)
	return asked
}

// askDemand returns the requests under way at servers; nil for those that do not
// answer.
func (l modelLoads) askDemand(ctx context.Context, servers []compute.NodeID) []map[compute.ExecutionID]int {
	ctx, cancel := context.WithTimeout(ctx, shareTimeout)
	defer cancel()
	out := make([]map[compute.ExecutionID]int, len(servers))
	var group sync.WaitGroup
	for i, id := range servers {
		group.Go(func() {
			var loads []router.Load
			data, err := l.node.cluster.Call(ctx, id, methodLoads, nil)
			if err != nil || cbor.Unmarshal(data, &loads) != nil {
				return
			}
			out[i] = make(map[compute.ExecutionID]int, len(loads))
			for _, l := range loads {
				out[i][l.Deployment] = l.UnderWay
			}
		})
	}
	group.Wait()
	return out
}
