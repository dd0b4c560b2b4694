package executor

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"berth/compute"
	"berth/fault"
	"berth/node/executor/journal"
	"berth/node/executor/live"
)

const (
	outboxDir = "outbox"
	newSuffix = ".new" // For a file that is being written.
	badSuffix = ".bad" // For a corrupt file.
)

// outbox has the outcomes that the state does not have yet, on disk those that are in
// no journal.
type outbox struct {
	dir    string
	wakeup chan struct{} // A signal of size one that wakes the sender.

	mu sync.Mutex

	pending map[live.Key]compute.Outcome
}

// openOutbox opens the outbox in dir, with the outcomes of an earlier process.
func openOutbox(dir string, logger *slog.Logger) (*outbox, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("open outbox: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("open outbox: %w", err)
	}
	o := &outbox{dir: dir, wakeup: make(chan struct{}, 1), pending: make(map[live.Key]compute.Outcome)}
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		if strings.HasSuffix(name, badSuffix) {
			continue // Kept for inspection.
		}
		if strings.HasSuffix(name, newSuffix) {
			os.Remove(name) // It may be incomplete. Adoption ends the attempt by its journal.
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("open outbox: %w", err)
		}
		outcome, err := journal.Decode(data)
		if err != nil {
			// Adoption ends the attempt by its journal.
			logger.Error("corrupt outcome set aside", "path", name, "err", err)
			if err := os.Rename(name, name+badSuffix); err != nil {
				return nil, fmt.Errorf("open outbox: %w", err)
			}
			continue
		}
		o.pending[live.Key{Execution: outcome.Execution, Epoch: outcome.Epoch}] = outcome
	}
	o.wake()
	return o, nil
}

// put queues the outcome for sending. It makes it durable before, unless the attempt's
// journal has it, from which the next process puts it here again. A second outcome of
// an attempt is dropped, because the first stands. An outcome that cannot be made
// durable is sent too.
func (o *outbox) put(outcome compute.Outcome, journaled bool) error {
	k := live.Key{Execution: outcome.Execution, Epoch: outcome.Epoch}
	o.mu.Lock()
	_, known := o.pending[k]
	o.mu.Unlock()
	if known {
		return nil
	}
	var err error
	if !journaled {
		err = o.store(k, outcome)
	}
	fault.Point("executor.outbox.stored")
	o.mu.Lock()
	o.pending[k] = outcome
	o.mu.Unlock()
	o.wake()
	return err
}

// store makes an outcome durable.
func (o *outbox) store(k live.Key, outcome compute.Outcome) error {
	data, err := journal.Encode(outcome)
	if err != nil {
		return err
	}
	if err = fault.Error("executor.outbox.put"); err == nil {
		err = writeDurably(o.path(k), data)
	}
	if err != nil {
		return fmt.Errorf("put into outbox: %w", err)
	}
	return nil
}

// remove removes an outcome that the state has or has finally refused.
func (o *outbox) remove(k live.Key) error {
	o.mu.Lock()
	delete(o.pending, k)
	o.mu.Unlock()
	if err := os.Remove(o.path(k)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove from outbox: %w", err)
	}
	return nil
}

func (o *outbox) path(k live.Key) string { return filepath.Join(o.dir, k.String()) }

func (o *outbox) wake() {
	select {
	case o.wakeup <- struct{}{}:
	default:
	}
}

// waiting returns up to limit outcomes that are not in skip, and the number of all
// outcomes.
func (o *outbox) waiting(skip map[live.Key]bool, limit int) ([]compute.Outcome, int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var list []compute.Outcome
	for k, outcome := range o.pending {
		if len(list) == limit {
			break
		}
		if !skip[k] {
			list = append(list, outcome)
		}
	}
	return list, len(o.pending)
}

// keys returns the attempts whose outcomes wait.
func (o *outbox) keys() []live.Key {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.pending))
}

// writeDurably writes the file atomically and durably.
func writeDurably(name string, data []byte) error {
	file, err := os.OpenFile(name+newSuffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(name+newSuffix, name); err != nil {
		return err
	}
	return journal.SyncDir(filepath.Dir(name))
}

// has reports whether the outcome of an attempt waits.
func (o *outbox) has(k live.Key) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, known := o.pending[k]
	return known
}
