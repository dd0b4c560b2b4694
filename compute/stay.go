package compute

import "context"

// staying is the key of contexts of StayHere.
type staying struct{}

// StayHere returns a context within which this node asks no other one, nor an object store: that
// of a stale read, which is answered while they do not answer.
func StayHere(ctx context.Context) context.Context { return context.WithValue(ctx, staying{}, true) }

// MayAsk returns a refusal, unavailable, if ctx is one of StayHere.
func MayAsk(ctx context.Context) error {
	if ctx.Value(staying{}) == nil {
		return nil
	}
	return Errorf(CodeUnavailable, "It is on another node, which a stale read does not ask.").Named("elsewhere")
}
