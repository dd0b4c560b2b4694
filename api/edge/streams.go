package edge

import "berth/compute"

// Limits of streams and held answers.
const (
	orgStreamShare    = 4  // The part of Limits.Streams that one organization may have: a quarter,
	callerStreamShare = 16 // and one key or user: a sixteenth. A stream takes 32 KiB, and up to 112 KiB if nobody reads.
	maxDownloads      = 16 // Downloads of operators at once, beside Limits.Streams.
)

// TakeStream counts a stream or a held answer of an organization and of the key
// or user that asked, if it was one. The caller calls release at its end.
func (c *Core) TakeStream(r *Request, org compute.OrgID) (release func(), err error) {
	busy := compute.Errorf(compute.CodeUnavailable, "This node has too many open streams.").Named("too_many_streams")
	who := r.Caller.name()
	if !c.orgStreams.Take(org.String(), 1) {
		return nil, busy
	}
	if who != "" && !c.callerStreams.Take(who, 1) {
		c.orgStreams.Give(org.String(), 1)
		return nil, busy
	}
	c.metrics.streams.Inc()
	return func() {
		c.orgStreams.Give(org.String(), 1)
		if who != "" {
			c.callerStreams.Give(who, 1)
		}
		c.metrics.streams.Dec()
	}, nil
}

// TakeDownload counts a download of an operator.
func (c *Core) TakeDownload() (release func(), err error) {
	const owner = "operators"
	if !c.downloads.Take(owner, 1) {
		return nil, compute.Errorf(compute.CodeUnavailable,
			"This node serves too many downloads.").Named("too_many_streams")
	}
	c.metrics.streams.Inc()
	return func() {
		c.downloads.Give(owner, 1)
		c.metrics.streams.Dec()
	}, nil
}
