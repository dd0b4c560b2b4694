package submission

import (
	"cmp"
	"context"
	"crypto/sha256"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"

	"berth/api/edge"
	"berth/api/handler"
	"berth/api/wire"
	"berth/compute"
	"berth/fsm/command"
)

// Available refuses what a server of the cluster does not know yet.
func Available(r *edge.Request, in *wire.PythonStart) error {
	if in.NBCode > 0 && !r.Repeat {
		if err := r.View.AllowsCells(); err != nil {
			return err
		}
	}
	if in.Environment != "" && !r.Repeat {
		if err := r.View.AllowsEnvironments(); err != nil {
			return err
		}
	}
	if in.Outputs != "" && !r.Repeat {
		if err := cmp.Or(r.Caller.Allows(compute.ScopeStorage), r.View.AllowsOutputsPrefix()); err != nil {
			return err
		}
	}
	plain := in.Code != "" && in.Name == "" && in.Bundle == "" && len(in.Args) == 0 && len(in.Input) == 0
	if !plain && !r.Repeat {
		return r.View.AllowsPrograms()
	}
	return nil
}

// New returns the requested record. Apply fills fields that depend on
// the state.
func New(c *handler.Core, r *edge.Request, in *wire.PythonStart) (compute.Execution, error) {
	e := compute.Execution{
		ID:              compute.ExecutionID{UUID: c.NewID()},
		Org:             r.Caller.Actor.Org,
		User:            r.Caller.Actor.User,
		Key:             r.Caller.Actor.Key,
		Name:            in.Name,
		Environment:     compute.EnvironmentRef{Name: in.Environment},
		FileName:        shownName(in),
		Timeout:         time.Duration(in.Timeout) * time.Second,
		DisconnectGrace: time.Duration(in.DisconnectGrace) * time.Second,
		Priority:        in.Priority,
		Tags:            in.Tags,
		CallbackURLs:    in.CallbackURLs,
		MaxCredits:      in.MaxCredits,
		Preemptible:     in.Preemptible,
		MaxRetries:      in.MaxRetries,
		MinVRAMMiB:      int64(in.MinVRAMGB) << 10,
		MinCapability:   in.Capability(),
		OutputsPrefix:   in.Outputs,
	}
	if in.Bundle != "" {
		id, err := compute.ParseBundleID(in.Bundle)
		if err != nil {
			return e, ErrNoBundle()
		}
		e.Files = &compute.Files{Bundle: id}
		if err := checkScript(c, r, in, id); err != nil {
			return e, err
		}
	}
	r.View.RecordImports(&e, slices.Sorted(maps.Keys(in.Files)))
	in.SetOn(&e)
	if in.Network == compute.NetworkNone.String() {
		e.Network = compute.NetworkNone
	}
	return e, nil
}

// MountOf returns how an execution sees the stored files, nil if it does not. Where the
// start does not say, it does by default or not, and then is not refused for it.
func MountOf(r *edge.Request, in *wire.Mount, start *wire.Start, standard bool) (*compute.StorageMount, error) {
	wanted, said := in.Asked(start, standard)
	if !wanted {
		return nil, nil
	}
	refusal := r.Caller.Allows(compute.ScopeStorage)
	if refusal == nil && !r.Repeat {
		refusal = r.View.AllowsMounts()
	}
	if refusal != nil && said {
		return nil, refusal
	}
	if refusal != nil {
		return nil, nil //nolint:nilerr // Nobody asked for it.
	}
	return &compute.StorageMount{Path: in.S3MountPath, Optional: !said}, nil
}

// checkScript refuses a script that is not a file of the bundle.
func checkScript(c *handler.Core, r *edge.Request, in *wire.PythonStart, id compute.BundleID) error {
	if in.Script == "" || r.Repeat {
		return nil
	}
	u, ok := r.View.Upload(r.Caller.Actor.Org, id)
	if !ok {
		return ErrNoBundle()
	}
	tree, err := c.Config.Trees.Tree(r.Ctx, u.Manifest)
	if err != nil {
		return err
	}
	if e, ok := tree.Entry(in.Script); !ok || e.Dir {
		return compute.Errorf(compute.CodeInvalid, "The bundle has no file %q.", in.Script).Named("no_script")
	}
	return nil
}

// shownName returns the name of the file for the record: the client's, or else
// that of the script, module or program.
func shownName(in *wire.PythonStart) string {
	name := cmp.Or(in.FileName, in.Script, in.Module)
	if name == "" && len(in.Command) > 0 {
		name = in.Command[0]
	}
	name = path.Base(name)
	if name == "." || len(name) > maxShownName || strings.ContainsFunc(name, unicode.IsControl) {
		return ""
	}
	return name
}

// maxShownName limits names that clients did not give as such, in bytes.
const maxShownName = 255

// Propose stores the bundle and proposes an execution. A repeat gets the first answer.
func Propose(c *handler.Core, r *edge.Request, bundle *compute.Bundle, cmd command.Submit) (command.Result, error) {
	if r.Repeat {
		return r.First, nil
	}
	cmd.Op, cmd.Actor = c.Op(r), r.Caller.Actor
	var err error
	check := func() error { return r.View.CheckSubmit(cmd) }
	if cmd.Execution.Bundle, err = storeBundle(r.Ctx, c.Config.Blobs, bundle, check); err != nil {
		return command.Result{}, err
	}
	return c.Propose(r, cmd)
}

// ProposeCode proposes an execution of the code and the files of a start, with the stored
// files that it imports.
func ProposeCode(c *handler.Core, r *edge.Request, in *wire.PythonStart, e compute.Execution) (command.Result, error) {
	if r.Repeat {
		return r.First, nil
	}
	stored, err := storedImports(c, r, in)
	if err != nil {
		return command.Result{}, err
	}
	bundle := BundleOf(in)
	bundle.StoredFiles = stored
	return Propose(c, r, bundle, command.Submit{Execution: e})
}

// BundleOf returns the code and the files of a start.
func BundleOf(in *wire.PythonStart) *compute.Bundle {
	return &compute.Bundle{
		Code: in.Code, FileName: in.FileName, ImportFiles: in.Files,
		PriorImports: in.PriorImports, Env: in.Env, Requirements: in.Requirements,
		Module: in.Module, Command: in.Command, Script: in.Script, Args: in.Args, Stdin: in.Input,
		Cell: in.NBCode, KernelState: in.KernelState,
	}
}

// storeBundle encodes code and files. A bundle too large for a command is
// durable on other nodes when it returns. Large code and files are encoded and
// stored if check returns nil.
func storeBundle(
	ctx context.Context, blobs handler.Blobs, bundle *compute.Bundle, check func() error,
) (compute.BundleRef, error) {
	if textBytes(bundle) > compute.MaxInlineBundle || len(bundle.StoredFiles) > 0 {
		if err := check(); err != nil {
			return compute.BundleRef{}, err // Refused starts take no memory for it.
		}
	}
	data, err := bundle.Encode()
	if err != nil {
		return compute.BundleRef{}, err
	}
	ref := compute.BundleRef{Hash: sha256.Sum256(data), Size: int64(len(data))}
	if len(data) <= compute.MaxInlineBundle {
		ref.Inline = data
		return ref, nil
	}
	if err := check(); err != nil {
		return compute.BundleRef{}, err // Refused starts fill no disk.
	}
	ref.Hash, err = blobs.Put(ctx, data)
	return ref, err
}

// textBytes returns the length of the code and its files.
func textBytes(bundle *compute.Bundle) int {
	sum := len(bundle.Code) + len(bundle.Stdin) + len(bundle.KernelState) + len(bundle.Compose)
	for name, text := range bundle.ImportFiles {
		sum += len(name) + len(text)
	}
	return sum
}

// ErrNoBundle refuses a bundle that does not exist, or is another organization's.
func ErrNoBundle() error {
	return compute.Errorf(compute.CodeNotFound,
		"There is no such bundle: it may have expired. Send it again.").Named("bundle_not_found")
}
