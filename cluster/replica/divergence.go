package replica

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"

	"berth/cluster/datadir"
	"berth/cluster/disk"
	"berth/cluster/raftconf"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/loop"
)

// Replicas that have applied the same entries hold the same state. A fault of
// memory or of the program can make one differ; it would serve wrong answers and,
// as a leader, make wrong decisions. So every replica hashes its state at the same
// indexes, and the leader compares the hashes. A replica that differs from a
// majority of the voters is set aside as if it were damaged. Without a majority
// none is: an operator has to decide.

const (
	compareEvery   = 10 * time.Second
	compareTimeout = time.Second
	divergedOnce   = 24 * time.Hour // A replica that diverges again within this time stays out for as long.
	maxMarks       = 16             // That a server reports.
)

// CompareConfig configures the comparison of replicas.
type CompareConfig struct {
	Node       compute.NodeID
	Version    string             // Version of the program: another one may encode the state differently.
	StateMarks func() []StateMark // As cluster.Config.StateMarks.

	MarksMethod    string // A call for a server's marks, answered by HandleMarks,
	DivergedMethod string // and one that reports a divergence to it, answered by HandleDiverged.

	Dir         *datadir.Dir
	Codec       rpc.Codec
	Logger      *slog.Logger
	Now         func() time.Time
	Fatal       func(error)
	Go          func(func()) // Starts a goroutine that Close waits for.
	Servers     func() []raft.Server
	Call        func(ctx context.Context, node compute.NodeID, method string, request []byte) ([]byte, error)
	WhileLeader func(ctx context.Context, do func(ctx context.Context, term uint64) error) error
}

// Comparer compares the replicas of all servers while this node leads. Its
// methods may be called from any goroutine.
type Comparer struct {
	cfg      CompareConfig
	diverged prometheus.Gauge

	mu   sync.Mutex
	last Comparison
}

// NewComparer returns a comparer that has compared nothing.
func NewComparer(cfg CompareConfig, reg prometheus.Registerer) *Comparer {
	return &Comparer{cfg: cfg, diverged: newDiverged(reg)}
}

// Last returns the result of this leader's last comparison.
func (c *Comparer) Last() Comparison {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// note records the result of a comparison.
func (c *Comparer) note(found Comparison) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = found
}

// StateMark is the hash of the state after one entry.
type StateMark struct {
	Index uint64       `cbor:"1,keyasint"`
	Hash  compute.Hash `cbor:"2,keyasint"`
}

// marks are the state hashes that a server reports.
type marks struct {
	Version string      `cbor:"1,keyasint"` // Version of the program.
	Marks   []StateMark `cbor:"2,keyasint,omitempty"`
}

func (m marks) at(index uint64) (compute.Hash, bool) {
	for _, mark := range m.Marks {
		if mark.Index == index {
			return mark.Hash, true
		}
	}
	return compute.Hash{}, false
}

// ownMarks returns the newest marks of this server.
func (c *Comparer) ownMarks() marks {
	own := marks{Version: c.cfg.Version}
	if c.cfg.StateMarks != nil {
		own.Marks = c.cfg.StateMarks()
		own.Marks = own.Marks[max(0, len(own.Marks)-maxMarks):]
	}
	return own
}

// HandleMarks answers a leader with the marks of this server.
func (c *Comparer) HandleMarks(context.Context, rpc.Peer, []byte) ([]byte, error) {
	return c.cfg.Codec.Marshal(c.ownMarks()), nil
}

// Run compares the replicas in each term in which this node leads, until ctx
// ends.
func (c *Comparer) Run(ctx context.Context) error {
	if c.cfg.StateMarks == nil {
		return nil
	}
	err := c.cfg.WhileLeader(ctx, func(ctx context.Context, _ uint64) error {
		defer c.diverged.Set(0)
		defer c.note(Comparison{})
		for loop.Sleep(ctx, compareEvery) {
			c.CompareOnce(ctx)
		}
		return nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The end of ctx.
	}
	return err
}

// CompareOnce compares the replicas and notifies those that diverged.
func (c *Comparer) CompareOnce(ctx context.Context) {
	servers := c.cfg.Servers()
	reported := c.askMarks(ctx, servers)
	voters := make(map[compute.NodeID]bool)
	for _, s := range servers {
		if s.Suffrage == raft.Voter {
			voters[raftconf.NodeOf(s.ID)] = true
		}
	}
	found := compareMarks(reported, voters)
	shown := found
	if found.Unclear {
		shown.Diverged = slices.Collect(maps.Keys(reported))
	}
	c.note(shown)
	c.diverged.Set(float64(len(shown.Diverged)))
	if found.Unclear {
		c.cfg.Logger.Error("replicas diverged without a majority, operator required",
			"index", found.right.Index)
		return
	}
	for _, id := range found.Diverged {
		c.cfg.Logger.Error("replica diverged from the majority", "node", id, "index", found.right.Index)
		var err error
		if id == c.cfg.Node {
			err = c.setAside(found.right)
		} else {
			_, err = c.cfg.Call(ctx, id, c.cfg.DivergedMethod, c.cfg.Codec.Marshal(found.right))
		}
		if err != nil && ctx.Err() == nil {
			c.cfg.Logger.Error("diverged replica not set aside", "node", id, "err", err)
		}
	}
}

// askMarks returns the marks of the servers that run the same version.
func (c *Comparer) askMarks(ctx context.Context, servers []raft.Server) map[compute.NodeID]marks {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	type reply struct {
		id compute.NodeID
		m  marks
	}
	replies := make(chan reply, len(servers)) // Buffered for all, so that none blocks.
	for _, s := range servers {
		id := raftconf.NodeOf(s.ID)
		c.cfg.Go(func() {
			r := reply{id: id}
			if data, err := c.cfg.Call(ctx, id, c.cfg.MarksMethod, nil); err != nil || c.cfg.Codec.Unmarshal(data, &r.m) != nil {
				r.m = marks{}
			}
			replies <- r
		})
	}
	reported := make(map[compute.NodeID]marks, len(servers))
	for range servers {
		if r := <-replies; r.m.Version == c.cfg.Version && len(r.m.Marks) <= maxMarks {
			reported[r.id] = r.m
		}
	}
	return reported
}

// Comparison is the result of comparing replicas.
type Comparison struct {
	right    StateMark // Mark of the majority; only its index counts if Unclear.
	Diverged []compute.NodeID
	Unclear  bool // They differ, and there is no majority.
}

// compareMarks compares at the newest index of which a quorum of the voters has a
// mark.
func compareMarks(reported map[compute.NodeID]marks, voters map[compute.NodeID]bool) Comparison {
	need := raftconf.Quorum(len(voters))
	found := Comparison{right: StateMark{Index: newestMark(reported, voters, need)}}
	if found.right.Index == 0 {
		return found
	}
	agree := make(map[compute.Hash]int)
	for id, m := range reported {
		if hash, ok := m.at(found.right.Index); ok && voters[id] {
			agree[hash]++
		}
	}
	found.Unclear = true
	for hash, n := range agree {
		if n >= need {
			found.right.Hash, found.Unclear = hash, false
		}
	}
	if found.Unclear {
		return found
	}
	for id, m := range reported {
		if hash, ok := m.at(found.right.Index); ok && hash != found.right.Hash {
			found.Diverged = append(found.Diverged, id)
		}
	}
	return found
}

// newestMark returns the newest index of which at least need voters have a mark,
// 0 for none.
func newestMark(reported map[compute.NodeID]marks, voters map[compute.NodeID]bool, need int) (newest uint64) {
	have := make(map[uint64]int)
	for id, m := range reported {
		for _, mark := range m.Marks {
			if voters[id] {
				have[mark.Index]++
			}
		}
	}
	for index, n := range have {
		if n >= need {
			newest = max(newest, index)
		}
	}
	return newest
}

// HandleDiverged sets this server's replica aside when the leader reports that it
// differs from the majority's.
func (c *Comparer) HandleDiverged(_ context.Context, _ rpc.Peer, data []byte) ([]byte, error) {
	var right StateMark
	if err := c.cfg.Codec.Unmarshal(data, &right); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The mark cannot be read: %w", err)
	}
	return nil, c.setAside(right)
}

// setAside ends this server when its state differs from the majority's; the next
// start sets the replica aside.
func (c *Comparer) setAside(right StateMark) error {
	hash, known := c.ownMarks().at(right.Index)
	if !known || hash == right.Hash {
		return compute.Errorf(compute.CodeConflict, "The state of this server does not differ at entry %d.", right.Index)
	}
	return c.distrust(fmt.Sprintf("the state after entry %d is not that of the other servers", right.Index))
}

// distrust ends this server; the next start sets its replica aside. A server that
// is distrusted twice within a day stays out: its memory or its program is faulty,
// and an operator has to find out which.
func (c *Comparer) distrust(damage string) error {
	now := c.cfg.Now()
	err := c.cfg.Dir.Update(func(r *datadir.Record) {
		if since := now.Sub(r.DivergedAt).Abs(); since < divergedOnce {
			r.OutUntil = now.Add(divergedOnce)
		}
		r.Damaged, r.DivergedAt = damage, now
	})
	if err != nil {
		c.cfg.Logger.Error("divergence not recorded", "err", err)
	}
	err = fmt.Errorf("%w: %s", disk.ErrCorrupt, damage)
	if out := CheckTrusted(c.cfg.Dir, now); out != nil {
		err = out
	}
	c.cfg.Fatal(err)
	return nil
}

// CheckTrusted refuses to start a server that was distrusted twice within a day.
func CheckTrusted(dir *datadir.Dir, now time.Time) error {
	record := dir.Record()
	// A longer time means that the clock was wrong.
	if left := record.OutUntil.Sub(now); left <= 0 || left > divergedOnce {
		return nil
	}
	return compute.Errorf(compute.CodeConflict,
		"The state of this server was wrong twice within %s, the last time at %s (%s): its memory or its program is at "+
			"fault. Test the memory (memtest86+, rasdaemon) and compare the version with that of the others. It stays out "+
			"until %s and then rejoins with an empty replica; berth admin raft rejoin --data-dir %s --yes lets it in before.",
		divergedOnce, record.DivergedAt.UTC().Format(time.RFC3339), record.Damaged,
		record.OutUntil.UTC().Format(time.RFC3339), dir.Root()).Named("state_differs_again")
}
