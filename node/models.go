package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"log/slog"
	"strings"

	"berth/compute"
	"berth/fsm"
	"berth/node/inference/weights"
	"berth/node/worker"
)

// storedModels is where organizations store models: below it is owner/name.
const storedModels = "models/"

// modelPrefix returns where organizations store the files of a model.
func modelPrefix(model string) string {
	name, _, _ := strings.Cut(model, ":")
	name, _, _ = strings.Cut(name, "@")
	return storedModels + name + "/"
}

// storedModel returns the files of a model that an organization stores.
func storedModel(view *fsm.View, org compute.OrgID, model string) worker.StoredModel {
	var m worker.StoredModel
	prefix := modelPrefix(model)
	version := compute.Hash{}
	for o := range view.Objects(org, prefix) {
		name, below := strings.CutPrefix(o.Key, prefix)
		if !below {
			break
		}
		m.Files = append(m.Files, worker.StoredFile{Name: name, Size: o.Size, Version: hex.EncodeToString(o.Blob[:])})
		version = sha256.Sum256(append(version[:], o.Key+string(o.Blob[:])...))
	}
	m.Version = hex.EncodeToString(version[:])
	return m
}

// modelOf lists what the organization of a replica stores of its model.
func modelOf(view *fsm.View, e *compute.Execution) worker.StoredModel {
	return storedModel(view, e.Org, e.Inference.Model)
}

// listingOf returns the listing of a stored model for the store of models.
func listingOf(m worker.StoredModel, w weights.Want) (weights.Listing, error) {
	if len(m.Files) == 0 {
		return weights.Listing{}, compute.Errorf(compute.CodeNotFound,
			"the organization stores nothing below %s", modelPrefix(w.Name))
	}
	l := weights.Listing{Private: true, Version: m.Version}
	for _, f := range m.Files {
		l.Files = append(l.Files, weights.File{Name: f.Name, Size: f.Size, Version: f.Version})
	}
	return l, nil
}

// orgModels are the models in the storage of organizations, as a server reads them.
type orgModels struct{ *Node }

// List returns the files of a model that an organization stores.
func (s orgModels) List(_ context.Context, w weights.Want) (weights.Listing, error) {
	return listingOf(storedModel(s.machine.View(), w.Org, w.Name), w)
}

// Open reads a file from an offset. Each chunk is checked against its hash.
func (s orgModels) Open(
	ctx context.Context, w weights.Want, _ *weights.Listing, f *weights.File, offset int64,
) (io.ReadCloser, int64, error) {
	view := s.machine.View()
	bucket := view.Bucket(w.Org)
	object, known := view.Object(w.Org, modelPrefix(w.Name)+f.Name)
	if bucket == nil || !known || object.Size != f.Size || hex.EncodeToString(object.Blob[:]) != f.Version {
		return nil, 0, errModelChanged()
	}
	from, to := io.Pipe()
	go func() { to.CloseWithError(s.objects.Copy(ctx, bucket, object, to, offset, f.Size-offset)) }()
	return from, offset, nil
}

// copyTo writes a file of a replica's model from an offset on.
func (s orgModels) copyTo(
	ctx context.Context, view *fsm.View, e *compute.Execution, name string, offset int64, to io.Writer,
) error {
	bucket := view.Bucket(e.Org)
	object, known := view.Object(e.Org, modelPrefix(e.Inference.Model)+name)
	if bucket == nil || !known {
		return errModelChanged()
	}
	return s.objects.Copy(ctx, bucket, object, to, offset, object.Size-offset)
}

func errModelChanged() error {
	return compute.Errorf(compute.CodeConflict, "the organization has changed its model")
}

// workerModels are the same models as a worker reads them, from servers.
type workerModels struct {
	worker.Models

	logger *slog.Logger
}

// List returns the files of a model that an organization stores.
func (m workerModels) List(ctx context.Context, w weights.Want) (weights.Listing, error) {
	stored, err := m.Models.List(ctx, w.Org, w.Name)
	if worker.Older(err) {
		m.logger.Warn("stored models not read", "model", w.Name, "err", err)
		return weights.Listing{}, compute.Errorf(compute.CodeNotFound, "the servers are too old to send stored models")
	}
	if err != nil {
		return weights.Listing{}, err
	}
	return listingOf(stored, w)
}

// Open reads a file from an offset. The server checks each chunk against its hash.
func (m workerModels) Open(
	ctx context.Context, w weights.Want, _ *weights.Listing, f *weights.File, offset int64,
) (io.ReadCloser, int64, error) {
	body, err := m.Models.Open(ctx, w.Org, w.Name,
		worker.StoredFile{Name: f.Name, Size: f.Size, Version: f.Version}, offset)
	return body, offset, err
}
