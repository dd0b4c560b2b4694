package node

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"

	"github.com/fxamacker/cbor/v2"

	"berth/api/admin"
	"berth/cluster"
	"berth/cluster/rpc"
	"berth/compute"
	"berth/node/secrets"
)

// methodMaster is the call by which servers exchange the file of the master key. Its
// payload is a masterCall, or nothing. The answer is the file that the receiver has then.
const methodMaster = "secrets.master"

// masterStep is a step of a rotation of the master key.
type masterStep uint8

// Steps of a rotation.
const (
	stepAdd    masterStep = iota + 1 // The receiver also has the keys of the file.
	stepUse                          // The receiver also has them, and seals with the one that seals in the file.
	stepRetire                       // It removes all keys but the one that seals.
)

// masterCall is the payload of methodMaster.
type masterCall struct {
	Step   masterStep `cbor:"1,keyasint"`
	File   []byte     `cbor:"2,keyasint,omitempty"`
	Prefix []byte     `cbor:"3,keyasint,omitempty"` // To retire: how ciphertexts of the key that stays begin.
}

// masterKey rotates the master key on all servers, for the API. No step but stepRetire
// removes a key, so that two rotations at once lose nothing that either key sealed.
type masterKey struct{ node *Node }

// serve answers methodMaster.
func (k masterKey) serve(ctx context.Context, _ rpc.Peer, payload []byte) ([]byte, error) {
	if len(payload) == 0 {
		return k.node.master.Bytes(), nil
	}
	var call masterCall
	if err := cbor.Unmarshal(payload, &call); err != nil {
		return nil, compute.Errorf(compute.CodeInvalid, "not a step of a rotation: are all servers of one version?")
	}
	var err error
	path, id := k.path(), k.node.cluster.ClusterID()
	switch call.Step {
	case stepAdd:
		err = k.node.master.Join(path, call.File, id, false)
	case stepUse:
		if err = k.mayUse(ctx, call.File); err == nil {
			err = k.node.master.Join(path, call.File, id, true)
		}
	case stepRetire:
		err = k.node.master.Retire(path, call.Prefix, id)
	default:
		err = compute.Errorf(compute.CodeInvalid, "a rotation has no step %d", call.Step)
	}
	if err != nil {
		return nil, err
	}
	k.node.logger.Info("master key changed")
	return k.node.master.Bytes(), nil
}

// mayUse refuses the file of a rotation that another one has overtaken: values that its key
// seals would not be accepted.
func (k masterKey) mayUse(ctx context.Context, file []byte) error {
	prefix, err := secrets.PrefixOf(file)
	if err != nil {
		return err
	}
	view, err := k.node.reader().Read(ctx)
	if err != nil {
		return err
	}
	sealing := view.Sealing()
	if len(sealing) > 0 && !slices.ContainsFunc(sealing, func(p []byte) bool { return bytes.Equal(p, prefix) }) {
		return admin.OtherRotation()
	}
	return nil
}

// path returns the path of the file.
func (k masterKey) path() string { return filepath.Join(k.node.cfg.DataDir, masterKeyFile) }

// servers returns all servers.
func (k masterKey) servers() (out []*compute.Node) {
	for n := range k.node.machine.View().Nodes() {
		if n.Role == compute.RoleServer {
			out = append(out, n)
		}
	}
	return out
}

// collect returns the files of all servers.
func (k masterKey) collect(ctx context.Context) ([][]byte, error) { return k.call(ctx, nil) }

// send has all servers take a step, and returns the files that they have then.
func (k masterKey) send(ctx context.Context, step masterCall) ([][]byte, error) {
	payload, err := cbor.Marshal(step)
	if err != nil {
		return nil, fmt.Errorf("encode step of rotation: %w", err)
	}
	return k.call(ctx, payload)
}

// call calls methodMaster of all servers. All have to answer: one that seals with another
// key would be left behind.
func (k masterKey) call(ctx context.Context, payload []byte) ([][]byte, error) {
	var files [][]byte
	for _, server := range k.servers() {
		got, err := k.node.cluster.Call(ctx, server.ID, methodMaster, payload)
		if compute.CodeOf(err) == compute.CodeConflict {
			return nil, admin.OtherRotation()
		}
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
	files, err := k.collect(ctx)
	if err != nil {
		return nil, nil, err
	}
	file, next, err := k.node.master.WithNewKey(files...)
	if err != nil {
		return nil, nil, err
	}
	_, err = k.send(ctx, masterCall{Step: stepAdd, File: file})
	return k.node.master.Prefix(), next, err
}

// Use has the key with a prefix seal on all servers.
func (k masterKey) Use(ctx context.Context, prefix []byte) error {
	file, err := k.node.master.SealingWith(prefix)
	if err != nil {
		return err
	}
	_, err = k.send(ctx, masterCall{Step: stepUse, File: file})
	return err
}

// Retire removes the keys that do not seal from all servers. It fails where another key
// seals than the one with the prefix.
func (k masterKey) Retire(ctx context.Context, prefix []byte) (servers int, err error) {
	files, err := k.send(ctx, masterCall{Step: stepRetire, Prefix: prefix})
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
	if file, err := k.node.master.SealingWith(sealing[0]); err == nil { // It has the key, and seals with another one.
		k.followed(k.node.master.Join(k.path(), file, k.node.cluster.ClusterID(), true))
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
		if now := k.node.machine.View().Sealing(); len(now) != 1 || !bytes.Equal(now[0], sealing[0]) {
			return // Another rotation has begun: its steps send keys that the file lacks.
		}
		k.followed(k.node.master.Replace(k.path(), file, k.node.cluster.ClusterID()))
		return
	}
}

// followed logs that this server has followed a rotation, or why not.
func (k masterKey) followed(err error) {
	if err != nil {
		k.node.logger.Warn("master key not changed", "err", err)
		return
	}
	k.node.logger.Info("master key changed")
}

// handle answers calls about the master key.
func (k masterKey) handle() { k.node.cluster.Handle(methodMaster, cluster.Servers, k.serve) }
