package node

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"

	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/node/secrets"
)

// methodMaster is the call by which servers exchange the file of the master key. With a
// file the receiver uses that one from then on; the answer is the file that it has.
const methodMaster = "secrets.master"

// masterKey rotates the master key on all servers, for the API.
type masterKey struct{ node *Node }

// serve answers methodMaster.
func (k masterKey) serve(_ context.Context, _ rpc.Peer, file []byte) ([]byte, error) {
	if len(file) > 0 {
		if err := k.use(file); err != nil {
			return nil, err
		}
	}
	return k.node.master.Bytes(), nil
}

// use has another file in place of the master key.
func (k masterKey) use(file []byte) error {
	path := filepath.Join(k.node.cfg.DataDir, masterKeyFile)
	if err := k.node.master.Replace(path, file, k.node.cluster.ClusterID()); err != nil {
		return err
	}
	k.node.logger.Info("master key replaced")
	return nil
}

// servers returns all servers.
func (k masterKey) servers() (out []*compute.Node) {
	for n := range k.node.machine.View().Nodes() {
		if n.Role == compute.RoleServer {
			out = append(out, n)
		}
	}
	return out
}

// send gives a file to all servers, none to ask for theirs, and returns the files that
// they have. All have to answer: one that seals with another key would be left behind.
func (k masterKey) send(ctx context.Context, file []byte) ([][]byte, error) {
	var files [][]byte
	for _, server := range k.servers() {
		got, err := k.node.cluster.Call(ctx, server.ID, methodMaster, file)
		if err != nil {
			return nil, &compute.Error{
				Code: compute.CodeUnavailable, Err: fmt.Errorf("send master key to %s: %w", server.ID, err),
				Message: fmt.Sprintf("The server %s does not answer: start it, or remove it, and try again.", server.Name),
			}
		}
		files = append(files, got)
	}
	return files, nil
}

// Add gives all servers a further key, and returns how ciphertexts of the key that seals
// and of the further one begin.
func (k masterKey) Add(ctx context.Context) (now, next []byte, err error) {
	files, err := k.send(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	file, next, err := k.node.master.WithNewKey(files...)
	if err != nil {
		return nil, nil, err
	}
	_, err = k.send(ctx, file)
	return k.node.master.Prefix(), next, err
}

// Use has the key with a prefix seal on all servers.
func (k masterKey) Use(ctx context.Context, prefix []byte) error {
	file, err := k.node.master.SealingWith(prefix)
	if err != nil {
		return err
	}
	_, err = k.send(ctx, file)
	return err
}

// Retire removes the keys that do not seal from all servers.
func (k masterKey) Retire(ctx context.Context) (servers int, err error) {
	file, err := k.node.master.WithoutOldKeys()
	if err != nil {
		return 0, err
	}
	files, err := k.send(ctx, file)
	return len(files), err
}

// Reseal seals a value that is sealed for a context again, with the current key.
func (k masterKey) Reseal(sealed, context []byte) ([]byte, error) {
	return k.node.master.Reseal(sealed, context)
}

// follow asks the other servers for the master key, if this one missed a rotation:
// it was down, or joined meanwhile.
func (k masterKey) follow(ctx context.Context) {
	sealing := k.node.machine.View().Sealing()
	if len(sealing) != 1 || bytes.Equal(sealing[0], k.node.master.Prefix()) {
		return
	}
	for _, server := range k.servers() {
		if server.ID == k.node.cluster.ID() {
			continue
		}
		file, err := k.node.cluster.Call(ctx, server.ID, methodMaster, nil)
		if err != nil {
			continue
		}
		if prefix, err := secrets.PrefixOf(file); err != nil || !bytes.Equal(prefix, sealing[0]) {
			continue
		}
		if err := k.use(file); err != nil {
			k.node.logger.Warn("master key not replaced", "err", err)
		}
		return
	}
}

// handle answers calls about the master key.
func (k masterKey) handle() { k.node.cluster.Handle(methodMaster, cluster.Servers, k.serve) }
