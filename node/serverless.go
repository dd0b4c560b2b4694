package node

import (
	"context"

	"berth/api/edge/openai"
	"berth/boottime"
	"berth/compute"
	"berth/node/inference/meter"
)

// openMeter makes what meters requests to published models.
func (n *Node) openMeter() {
	n.meter = meter.New(meter.Config{
		Node: n.cluster.ID(), Propose: n.proposer().Propose, Read: n.reader().Read, At: n.machine.Wait,
		Now: n.opts.Now, Uptime: boottime.Now, Logger: n.logger, Metrics: n.registry,
	})
}

// tokens gives the API the meter.
type tokens struct{ *meter.Meter }

// Reserve sets aside what a request may cost.
func (t tokens) Reserve(
	ctx context.Context, payer compute.Payer, m *compute.Model, prompt, completion int64,
) (openai.Reservation, error) {
	r, err := t.Meter.Reserve(ctx, payer, m, prompt, completion)
	if err != nil {
		return nil, err
	}
	return r, nil
}
