package prepare

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	protocol "berth/attempt"
	"berth/compute"
	"berth/fault"
	"berth/node/executor/egress"
	"berth/node/executor/inputs"
	"berth/node/executor/journal"
	"berth/node/executor/live"
	"berth/node/executor/sandbox"
	"berth/node/executor/supervise"
)

// Prepare makes the attempt's directory and gives it a supervisor. It does not
// start an attempt that must stop. It checks that twice, because loading the
// inputs may take a minute. The supervisor checks it again.
func (p *Preparer) Prepare(ctx context.Context, a *live.Attempt, w compute.Work) (*supervise.Conn, error) {
	if err := a.MayStart(); err != nil {
		return nil, err
	}
	fault.Point("executor.prepare.begin")
	bundle, err := p.inputs.Bundle(ctx, w.Execution.Bundle)
	if err != nil {
		return nil, err
	}
	model, err := p.takeModel(ctx, a, w, bundle)
	if err != nil {
		return nil, err
	}
	if w.Execution.Container != nil && p.containers.engine.Load() == nil {
		return nil, compute.Errorf(compute.CodeUnavailable, "this node has no Docker engine that answers")
	}
	spare := p.supervisors.spareFor(w.Execution)
	p.supervisors.keep(spare) // It initialises meanwhile.
	res, err := p.takeResources(ctx, a, w, bundle, model)
	if err != nil {
		return nil, err
	}
	defer res.close() // The supervisor has its own descriptors.
	if err := p.layOut(ctx, a, w, bundle, res); err != nil {
		return nil, err
	}
	if err := errors.Join(ctx.Err(), a.MayStart()); err != nil {
		return nil, err
	}
	waiting := res.supervisor
	if waiting == nil {
		if waiting, err = p.supervisors.take(spare); err != nil {
			return nil, err
		}
	}
	res.supervisor = nil // The attempt has it.
	conn, err := p.supervisors.hand(waiting, spare, p.dirs.Dir(a.Key), res)
	if err == nil {
		p.warm.want(res.warm)
	}
	return conn, err
}

// takeResources takes what the attempt needs of the machine.
func (p *Preparer) takeResources(
	ctx context.Context, a *live.Attempt, w compute.Work, bundle *compute.Bundle, model []sandbox.Bind,
) (res *resources, err error) {
	if w.Execution.Container != nil {
		res, err = p.takeForContainers(ctx, a, w, bundle, model)
	} else {
		res, err = p.takeForSandbox(ctx, a, w, bundle, model)
	}
	if err != nil && res != nil {
		res.close()
	}
	return res, err
}

// takeForSandbox takes what a sandbox needs of the machine. With an error it returns what it
// took before.
func (p *Preparer) takeForSandbox(
	ctx context.Context, a *live.Attempt, w compute.Work, bundle *compute.Bundle, model []sandbox.Bind,
) (*resources, error) {
	env, err := p.environments.of(ctx, w.Execution)
	if err != nil {
		return nil, err
	}
	if p.specs.pythonFor(env) == nil && needsPython(bundle) {
		return nil, p.noPython
	}
	kept, err := p.inputs.VariablesOf(ctx, w, bundle)
	if err != nil {
		return nil, err
	}
	res, err := p.takeSandbox(ctx, a, w, bundle, p.startsEarly(w.Execution, bundle, kept))
	if err != nil {
		return nil, err
	}
	res.environment, res.model = env, model
	if res.packages, err = p.installer.take(ctx, a, w, bundle, env); err != nil {
		return res, err
	}
	if res.variables, err = inputs.PassVariables(kept); err != nil {
		return res, err
	}
	return res, p.buckets.take(ctx, a, w, res)
}

// takeForContainers is takeForSandbox for code that executes in containers.
func (p *Preparer) takeForContainers(
	ctx context.Context, a *live.Attempt, w compute.Work, bundle *compute.Bundle, model []sandbox.Bind,
) (*resources, error) {
	slot, err := p.pool.slots.TakeOwned(p.cfg.Node.String(), egress.WideSlots)
	if err != nil {
		return nil, err
	}
	res := &resources{slot: slot, model: model}
	if bundle.Compose == "" {
		err = p.pool.takeDisk(ctx, w.Execution, res)
	}
	if err != nil {
		return res, err
	}
	kept, err := p.inputs.VariablesOf(ctx, w, bundle)
	if err != nil {
		return res, err
	}
	if res.variables, err = inputs.PassVariables(kept); err != nil {
		return res, err
	}
	if err := p.containers.take(ctx, a, w, bundle, res); err != nil {
		return res, err
	}
	if err := p.buckets.take(ctx, a, w, res); err != nil {
		return res, err
	}
	if res.mounted != nil {
		res.container.Volumes = append(res.container.Volumes, *res.mounted)
	}
	return res, nil
}

// takeSandbox takes a warm sandbox, or what is needed to make one.
func (p *Preparer) takeSandbox(
	ctx context.Context, a *live.Attempt, w compute.Work, bundle *compute.Bundle, early bool,
) (*resources, error) {
	key, ok := p.warm.keyFor(w, bundle, early)
	if ok {
		if warm := p.warm.take(key); warm != nil {
			p.metrics.warm.Inc()
			a.SetGroup(warm.group.Name())
			warm.res.supervisor, warm.res.group, warm.res.warm = warm.process, warm.group.Name(), &key
			return warm.res, nil
		}
	}
	res, err := p.pool.takeFor(ctx, w.Execution.Network, w.Execution)
	if err != nil {
		return nil, err
	}
	if res.early = early; ok {
		res.warm = &key
	}
	return res, nil
}

// layOut makes the directory of the attempt with the files that its supervisor reads.
// It makes the journal first, so that a later process knows the attempt.
func (p *Preparer) layOut(
	ctx context.Context, a *live.Attempt, w compute.Work, bundle *compute.Bundle, res *resources,
) error {
	dir := p.dirs.Dir(a.Key)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make attempt directory: %w", err)
	}
	if err := journal.Create(filepath.Join(dir, supervise.JournalFile)); err != nil {
		return fmt.Errorf("make attempt directory: %w", err)
	}
	fault.Point("executor.prepare.journal")
	if err := p.dirs.NoteOutputsPrefix(a.Key, w.Execution); err != nil {
		return fmt.Errorf("make attempt directory: %w", err)
	}
	tree, err := p.inputs.Tree(ctx, w.Execution.Files)
	if err != nil {
		return err
	}
	work := filepath.Join(dir, supervise.WorkFile)
	if err := inputs.WriteWork(work, bundle, p.inputs.Uploaded(ctx, a, tree)); err != nil {
		return err
	}
	if protocol.MayLeave(w.Execution) {
		if err := makeNoticeDir(filepath.Join(dir, supervise.NoticeDir)); err != nil {
			return err
		}
	}
	if len(bundle.Stdin) > 0 {
		if err := os.WriteFile(filepath.Join(dir, supervise.InputFile), bundle.Stdin, 0o600); err != nil {
			return fmt.Errorf("write standard input: %w", err)
		}
	}
	volumes, err := p.volumes.binds(w.Execution)
	if err != nil {
		return err
	}
	spec := p.specs.of(w, bundle, res, dir)
	spec.DisconnectGrace, spec.ContactAt, spec.Unpack = a.Grace(), a.ReachedAt(), inputs.UnpackTime(tree)
	if spec.Container != nil {
		spec.Unpack += containerStart
	} else {
		spec.Sandbox.Binds = append(append(spec.Sandbox.Binds, res.model...), volumes...)
	}
	return spec.Write(dir)
}
