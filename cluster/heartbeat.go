package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"berth/boottime"
	"berth/cluster/clock"
	"berth/cluster/raftconf"
	"berth/cluster/rpc"
	"berth/cluster/transport"
	"berth/compute"
)

// Limits of heartbeats.
const (
	heartbeatEvery   = 3 * time.Second // With a fifth of jitter.
	heartbeatRetry   = 300 * time.Millisecond
	heartbeatTimeout = 2 * time.Second
	maxHeard         = 20_000 // Nodes; as many as a cluster may have.
	aliveFor         = 10 * time.Second
)

// heartbeat is the message of a node to the leader. The certificate of the connection
// identifies the node.
type heartbeat struct {
	RPC   string `cbor:"1,keyasint"`
	Ahead int64  `cbor:"2,keyasint,omitempty"` // Milliseconds by which its clock is ahead, as last measured.
	At    int64  `cbor:"3,keyasint,omitempty"` // Its clock, in milliseconds since 1970; 0 of an older version.
	Term  uint64 `cbor:"4,keyasint,omitempty"` // The term in which a server sent it; 0 of workers and older versions.
}

// heartbeatAnswer is the leader's answer. It is empty while the leader does not
// know the time, and from an older version.
type heartbeatAnswer struct {
	At int64 `cbor:"1,keyasint"` // The cluster's time, in milliseconds since 1970.
}

// heartbeats sends this node's heartbeats to the leader and, on the leader,
// records those of all nodes.
type heartbeats struct {
	c   *Cluster
	now func() time.Time // The monotonic clock.

	mu        sync.Mutex
	contactAt time.Duration // Boottime when the last answered one was sent.
	since     time.Time     // When this node began to lead.
	heard     map[compute.NodeID]heardFrom
	refused   map[compute.NodeID]bool // Nodes that get no answers; see Refuse.
}

// heardFrom is when and from where a node was last heard.
type heardFrom struct {
	at   time.Time
	rpc  string
	role compute.Role

	ahead time.Duration // Its clock against the cluster's time, as it measured.
	clock time.Time     // Its clock when it was heard; zero when unknown.
}

func newHeartbeats(c *Cluster) *heartbeats {
	return &heartbeats{
		c: c, now: time.Now, heard: make(map[compute.NodeID]heardFrom), refused: make(map[compute.NodeID]bool),
	}
}

// Heard returns when this node, as the leader, last heard a node, by its own
// monotonic clock: zero when it has not since its term began. It is false when
// this node does not lead.
func (c *Cluster) Heard(node compute.NodeID) (time.Time, bool) {
	if c.terms.ready() == 0 {
		return time.Time{}, false
	}
	h := c.heartbeats
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := h.heard[node].at; !at.Before(h.since) {
		return at, true
	}
	return time.Time{}, true
}

// Refuse leaves the heartbeats of a node without an answer until allow is called. So the
// leader can act on the node's silence before the node has contact again.
// It reports false, and refuses nothing, if the node was heard after the given result of
// Heard.
func (c *Cluster) Refuse(node compute.NodeID, heard time.Time) (allow func(), ok bool) {
	h := c.heartbeats
	h.mu.Lock()
	defer h.mu.Unlock()
	if at := h.heard[node].at; !at.Before(h.since) && at.After(heard) {
		return nil, false
	}
	h.refused[node] = true
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.refused, node)
	}, true
}

// refuses reports whether a node gets no answers now.
func (h *heartbeats) refuses(node compute.NodeID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.refused[node]
}

// ContactAt returns the boottime at which this node sent the last heartbeat that
// the leader answered; 0 when none was.
func (c *Cluster) ContactAt() time.Duration {
	c.heartbeats.mu.Lock()
	defer c.heartbeats.mu.Unlock()
	return c.heartbeats.contactAt
}

// age returns how long ago the last answered heartbeat was sent, the longest
// duration when none was.
func (h *heartbeats) age() time.Duration {
	at := h.c.ContactAt()
	if at == 0 {
		return time.Duration(1<<63 - 1)
	}
	return boottime.Now() - at
}

// startTerm records that a term of this node begins.
func (h *heartbeats) startTerm() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.since = h.now()
}

// run sends heartbeats until ctx ends or the cluster reports that this node was
// removed.
func (h *heartbeats) run(ctx context.Context) error {
	for {
		changed := h.c.leaders.next()
		wait := heartbeatEvery - heartbeatEvery/10 + rand.N(heartbeatEvery/5)
		if err := h.send(ctx); err != nil {
			if IsRemoved(err) {
				return err
			}
			h.c.logger.Debug("heartbeat not answered", "err", err)
			wait = heartbeatRetry
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-changed:
			timer.Stop()
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// IsRemoved reports whether err means that this node was removed from the
// cluster.
func IsRemoved(err error) bool {
	e, ok := errors.AsType[*compute.Error](err)
	return ok && e.Detail == transport.ErrRemoved().Detail
}

// send sends one heartbeat to the leader, or searches for it.
func (h *heartbeats) send(ctx context.Context) error {
	if leader, known := h.c.Leader(); known {
		return h.beat(ctx, leader)
	}
	return h.search(ctx)
}

// beat sends one heartbeat to the leader.
func (h *heartbeats) beat(ctx context.Context, leader compute.NodeID) error {
	ctx, cancel := context.WithTimeout(ctx, heartbeatTimeout)
	defer cancel()
	sentAt := boottime.Now()
	beat := heartbeat{RPC: h.c.advertise, Ahead: h.c.clock.Ahead().Milliseconds(), At: h.c.cfg.Now().UnixMilli()}
	if h.c.raft != nil {
		beat.Term = h.c.raft.CurrentTerm() // After sentAt.
	}
	answer, err := h.c.Call(ctx, leader, methodHeartbeat, h.c.codec.Marshal(beat))
	if err != nil {
		h.c.upstream.lead(compute.NodeID{})
		return err
	}
	if h.c.raft == nil || h.c.raft.CurrentTerm() == beat.Term { // Else this node may lead meanwhile.
		h.compareClocks(leader, answer, boottime.Now()-sentAt)
	}
	h.c.upstream.lead(leader)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.contactAt = boottime.Reached(sentAt, boottime.Now())
	return nil
}

// search finds the leader and sends it a heartbeat when raft does not know it. A
// worker has no raft; the leader cannot reach a node that moved before its
// heartbeat; and a server that rejoined with an empty replica is in no
// configuration that it knows. All servers are asked at once, so that a silent one
// delays nothing. The leaders that they name are tried in the order of answers.
func (h *heartbeats) search(ctx context.Context) error {
	asking, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	type reply struct {
		leader compute.NodeID
		err    error
	}
	servers := h.otherServers()
	replies := make(chan reply, len(servers)) // Buffered for all, so that none blocks.
	for _, id := range servers {
		h.c.work.Go(func() {
			st, err := h.c.healthReport.status(asking, id)
			replies <- reply{st.Leader, err}
		})
	}
	errs := []error{errNoLeader()}
	var tried []compute.NodeID
	for range servers {
		r := <-replies
		switch {
		case IsRemoved(r.err):
			return r.err
		case r.err != nil:
			errs = append(errs, r.err)
		case !r.leader.IsZero() && !slices.Contains(tried, r.leader):
			tried = append(tried, r.leader)
			err := h.beat(ctx, r.leader)
			if err == nil || IsRemoved(err) {
				return err
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// otherServers returns the servers that this node knows, by raft or from disk.
func (h *heartbeats) otherServers() (servers []compute.NodeID) {
	add := func(id compute.NodeID) {
		if id != h.c.id && !slices.Contains(servers, id) {
			servers = append(servers, id)
		}
	}
	for _, s := range h.c.Servers() {
		add(s.ID)
	}
	for _, p := range h.c.dir.Record().Peers {
		add(p.ID)
	}
	return servers
}

// handle records a node's heartbeat. It answers once a majority has confirmed this
// leader after the heartbeat was sent: an answer extends leases from then on, and a leader
// that was paused or partitioned may not know yet that a newer one counts them.
func (h *heartbeats) handle(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	came := h.now()
	var beat heartbeat
	if err := h.c.codec.Unmarshal(data, &beat); err != nil || len(beat.RPC) > maxAddressLength {
		return nil, compute.Errorf(compute.CodeInvalid, "The heartbeat cannot be read.")
	}
	if err := h.confirmed(ctx, peer.ID, beat.Term); err != nil {
		return nil, err
	}
	from := h.from(peer, beat, came)
	if !h.keep(peer.ID, from) {
		h.forgetRemoved(from.at)
		if !h.keep(peer.ID, from) {
			return nil, compute.Errorf(compute.CodeUnavailable, "The leader hears from too many nodes.")
		}
	}
	if h.refuses(peer.ID) { // After keep: Refuse sees each heartbeat that is answered.
		return nil, compute.Errorf(compute.CodeUnavailable, "The leader is giving up what the node executed.")
	}
	if peer.Role == compute.RoleServer {
		h.c.clock.Steer()
	}
	return h.answer(), nil
}

// answer returns the answer to a heartbeat. A follower that later leads continues
// the time in it. So the answer has no time while this leader knows only the
// state's, which is as old as the last entry.
func (h *heartbeats) answer() []byte {
	at, known := h.c.clock.Agreed()
	if !known {
		return nil
	}
	return h.c.codec.Marshal(heartbeatAnswer{At: at.UnixMilli()})
}

// compareClocks compares this node's clock with the cluster's time by the
// leader's answer to a heartbeat. An answer without the time is of a leader that
// does not know it yet, or of an older version.
func (h *heartbeats) compareClocks(leader compute.NodeID, answer []byte, took time.Duration) {
	var got heartbeatAnswer
	if len(answer) == 0 || h.c.codec.Unmarshal(answer, &got) != nil {
		return
	}
	if leader == h.c.id {
		h.c.clock.CompareOwn(leader)
		return
	}
	h.c.clock.Follow(leader, time.UnixMilli(got.At), took)
}

// from returns the record of a heartbeat that came at a time of the monotonic
// clock.
func (h *heartbeats) from(peer rpc.Peer, beat heartbeat, came time.Time) heardFrom {
	from := heardFrom{
		at: h.now(), rpc: beat.RPC, role: peer.Role, ahead: time.Duration(beat.Ahead) * time.Millisecond,
	}
	if beat.At > 0 {
		from.clock = time.UnixMilli(beat.At).Add(from.at.Sub(came))
	}
	return from
}

// keep records when a node was heard. It reports false at the limit of nodes.
func (h *heartbeats) keep(id compute.NodeID, from heardFrom) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.heard[id]; !known && len(h.heard) >= maxHeard {
		return false
	}
	h.heard[id] = from
	return true
}

// forgetRemoved forgets the silent nodes that the state does not have. For the
// others the length of their silence still counts.
func (h *heartbeats) forgetRemoved(now time.Time) {
	h.mu.Lock()
	silent := make(map[compute.NodeID]time.Time)
	for id, from := range h.heard {
		if now.Sub(from.at) >= aliveFor {
			silent[id] = from.at
		}
	}
	h.mu.Unlock()
	for id := range silent {
		if _, removed, known := h.c.cfg.Directory.Node(id); known && !removed {
			delete(silent, id)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, at := range silent {
		if h.heard[id].at.Equal(at) {
			delete(h.heard, id)
		}
	}
}

// alive reports whether a node was heard recently in this term.
func (h *heartbeats) alive(id compute.NodeID) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	from, known := h.heard[id]
	return known && from.at.After(h.since) && h.now().Sub(from.at) < aliveFor
}

// clocks returns by how much the clocks of the nodes heard in this term are ahead
// of the cluster's time.
func (h *heartbeats) clocks() (clocks []NodeClock) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, from := range h.heard {
		if from.at.After(h.since) {
			clocks = append(clocks, NodeClock{id, from.ahead})
		}
	}
	return clocks
}

// clockOf returns the present reading of another node's clock, false when it was
// not heard recently or does not report its clock.
func (h *heartbeats) clockOf(id compute.NodeID) (time.Time, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	from, now := h.heard[id], h.now()
	if id == h.c.id || from.clock.IsZero() || !from.at.After(h.since) || now.Sub(from.at) >= aliveFor {
		return time.Time{}, false
	}
	return from.clock.Add(now.Sub(from.at)), true
}

// confirmed returns nil when this node leads and a majority confirmed it after a node sent its
// heartbeat in a term: the two are one, or others are asked. Concurrent calls share one
// check.
func (h *heartbeats) confirmed(ctx context.Context, sender compute.NodeID, sentIn uint64) error {
	if _, ok := h.c.reader.askedIndex(sender, sentIn); ok {
		return nil
	}
	term := h.c.terms.ready()
	if term == 0 {
		return errNoLeader()
	}
	_, err := h.c.ReadIndex(ctx)
	// A node that follows meanwhile has asked the leader.
	if err != nil || h.c.terms.ready() != term || h.c.raft.CurrentTerm() != term {
		return errNoLeader()
	}
	return nil
}

// rpcAddress returns the address that a node reported, "" for none.
func (h *heartbeats) rpcAddress(id compute.NodeID) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.heard[id].rpc
}

// servers returns the servers heard in this term and their addresses.
func (h *heartbeats) servers() map[compute.NodeID]string {
	h.mu.Lock()
	defer h.mu.Unlock()
	servers := make(map[compute.NodeID]string, len(h.heard))
	for id, from := range h.heard {
		if from.role == compute.RoleServer && from.at.After(h.since) {
			servers[id] = from.rpc
		}
	}
	return servers
}

// Clock returns the cluster's time.
func (c *Cluster) Clock() *clock.Clock { return c.clock }

// voterClocks returns by how much the clocks of the other voters that were heard
// lately are ahead of now, and how many voters there are.
func (c members) voterClocks(now time.Time) (ahead []time.Duration, voters int) {
	for _, s := range c.servers() {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if clock, known := c.heartbeats.clockOf(raftconf.NodeOf(s.ID)); known {
			ahead = append(ahead, clock.Sub(now))
		}
	}
	return ahead, voters
}
