package faults

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"berth/api/wire"
	"berth/bench/faults/check"
)

// registerOrg is the organization whose quotas are the registers. The GPU quota
// of a tag is a number that an operator writes and reads through any node.
// Nothing else depends on it.
const registerOrg = "registers"

// Concurrent registers, and the tries after which a new one replaces each.
const (
	registersAtOnce = 4
	triesPerObject  = 1_500
)

// registers is the workload of writes and linearizable reads.
type registers struct {
	session *session
	base    [registersAtOnce]atomic.Uint64 // Registers used up in each place.
	values  atomic.Int64                   // Every write has a new value.
}

func (w *registers) name() string { return "register" }

func (w *registers) clients() int { return 6 }

func (w *registers) prepare(ctx context.Context) error {
	return w.session.createOrg(ctx, registerOrg)
}

func (w *registers) run(ctx context.Context, c *caller) {
	for c.pause(ctx, 60*time.Millisecond) {
		place := c.rng.IntN(registersAtOnce)
		tag := fmt.Sprintf("r%d-%d", place, w.base[place].Load())
		o := check.Object{Kind: check.KindRegister, Name: tag}
		if n := w.session.history.Len(o); n >= triesPerObject {
			w.base[place].Add(1)
			continue
		}
		if c.rng.IntN(2) == 0 {
			w.write(ctx, c, o, tag)
		} else {
			w.read(ctx, c, o, tag)
		}
	}
}

func (w *registers) write(ctx context.Context, c *caller, o check.Object, tag string) {
	value := int(w.values.Add(1))
	c.next()
	node := c.any("")
	t := w.session.history.Call(o, c.id, check.Write{Value: value})
	out, err := c.try(ctx, w.name(), func(ctx context.Context) error {
		_, err := node.SetQuota(ctx, wire.NewQuota{Org: registerOrg, Tag: tag, MaxGPUMilli: value})
		return err
	})
	settle(t, out, true)
	if out == refused {
		w.session.unexpected(w.name(), "write "+tag, err)
	}
}

func (w *registers) read(ctx context.Context, c *caller, o check.Object, tag string) {
	node := c.any("")
	t := w.session.history.Call(o, c.id, check.Read{})
	var answer wire.OrgQuotas
	err := c.read(ctx, w.name(), func(ctx context.Context) (err error) {
		answer, err = node.OrgQuotas(ctx, registerOrg)
		return err
	})
	if err != nil {
		t.Drop()
		return
	}
	value := 0
	for _, l := range answer.Limits {
		if l.Tag != nil && *l.Tag == tag {
			value = int(l.MaxGPUMilli)
		}
	}
	t.Return(value)
}

func (w *registers) finish(context.Context) []check.Violation { return nil }
