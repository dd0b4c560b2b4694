package worker

import (
	"context"
	"time"

	"berth/cluster/rpc"
	"berth/compute"
)

// askArchive is one server's time to read an output and to store it.
const askArchive = 5 * time.Minute

// archiveRequest asks for the output of an ended attempt to be archived.
type archiveRequest struct {
	Execution compute.ExecutionID `cbor:"1,keyasint"`
	Epoch     uint64              `cbor:"2,keyasint"`
}

// archiveAnswer says whether the worker may remove the output.
type archiveAnswer struct {
	Done bool `cbor:"1,keyasint,omitempty"`
}

// serveArchive archives what an attempt of a worker has printed, which it reads from there.
func (s *Server) serveArchive(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	var req archiveRequest
	if err := rpc.NewCodec().Unmarshal(data, &req); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "The request cannot be read: %w", err)
	}
	done, err := s.Archive(ctx, peer.ID, req.Execution, req.Epoch)
	if err != nil {
		return nil, err
	}
	return rpc.NewCodec().Marshal(archiveAnswer{done}), nil
}

// Archive has the servers archive what a worker's attempts have printed.
type Archive struct{ Up Upstream }

// Keep has the output of an ended attempt archived. It reports true once the output may be
// removed, as it also may if the servers archive none.
func (a Archive) Keep(ctx context.Context, execution compute.ExecutionID, epoch uint64) (done bool, err error) {
	answer, err := ask(ctx, a.Up, askArchive, methodArchive, rpc.NewCodec().Marshal(archiveRequest{execution, epoch}))
	if Older(err) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	var out archiveAnswer
	if err := rpc.NewCodec().Unmarshal(answer, &out); err != nil {
		return false, compute.Errorf(compute.CodeInternal, "The answer cannot be read: %w", err)
	}
	return out.Done, nil
}
