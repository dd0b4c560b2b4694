package worker

import (
	"context"

	"berth/cluster/rpc"
	"berth/compute"
	"berth/fsm"
)

// serveGet gives a worker a manifest of the files of one of its live attempts, or
// a chunk that such a manifest names.
func (s *Server) serveGet(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	if len(data) != len(compute.Hash{}) {
		return nil, compute.Errorf(compute.CodeInvalid, "Not the hash of a blob.")
	}
	hash := compute.Hash(data)
	is, err := s.names(ctx, s.Machine.View(), peer.ID, hash)
	if err == nil && !is {
		var view *fsm.View
		if view, err = s.Read(ctx); err == nil {
			is, err = s.names(ctx, view, peer.ID, hash)
		}
	}
	if err != nil {
		return nil, err
	}
	if !is {
		return nil, compute.Errorf(compute.CodeNotFound, "No live attempt of this node has such a file.")
	}
	return s.Blob(ctx, hash)
}

// names reports whether a blob is a manifest of files of a node's live attempts,
// or a chunk of theirs.
func (s *Server) names(ctx context.Context, view *fsm.View, id compute.NodeID, hash compute.Hash) (bool, error) {
	for _, w := range view.Work(id) {
		if w.Execution.Files == nil {
			continue
		}
		if w.Execution.Files.Manifest == hash {
			return true, nil
		}
		chunks, err := s.Chunks(ctx, w.Execution.Files.Manifest)
		if err != nil {
			return false, err
		}
		if _, is := chunks[hash]; is {
			return true, nil
		}
	}
	return false, nil
}

// servePut stores what an attempt of a worker left. A worker without live attempts
// has nothing to store.
func (s *Server) servePut(ctx context.Context, peer rpc.Peer, data []byte) ([]byte, error) {
	if len(s.Machine.View().Work(peer.ID)) == 0 {
		view, err := s.Read(ctx)
		if err != nil {
			return nil, err
		}
		if len(view.Work(peer.ID)) == 0 {
			return nil, compute.Errorf(compute.CodeConflict, "This node has no live attempt.")
		}
	}
	hash, err := s.Put(ctx, data)
	return hash[:], err
}
