package client

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"berth/api/wire"
	"berth/compute"
	berth "berth/sdk/go"
)

// maxWait is the longest that one read of an execution is held by the node.
const maxWait = 30 * time.Second

// Start is a request to execute Python code.
type Start struct {
	Name            string            `json:"name,omitempty"`
	Code            string            `json:"code,omitempty"` // Exactly one of it, Module, Command and Script.
	Module          string            `json:"module,omitempty"`
	Command         []string          `json:"command,omitempty"`
	Script          string            `json:"script,omitempty"`       // Path of a file of the bundle.
	Args            []string          `json:"args,omitempty"`         // For Code, Module or Script.
	Stdin           string            `json:"stdin,omitempty"`        // Text, at most 1 MiB.
	StdinBase64     string            `json:"stdin_base64,omitempty"` // The same for binary data.
	BundleID        string            `json:"bundle_id,omitempty"`
	ExecutionType   string            `json:"execution_type,omitempty"` // Hardware profile; "" for cpu.
	Timeout         int               `json:"timeout,omitempty"`        // Seconds; 0 for the node's default.
	FileName        string            `json:"file_name,omitempty"`
	PriorImports    []string          `json:"prior_imports,omitempty"`
	NBCode          int               `json:"nbcode,omitempty"`               // Number of a notebook cell; 0 for a script.
	KernelState     string            `json:"kernel_state,omitempty"`         // That of the cell before.
	Requirements    string            `json:"requirements_content,omitempty"` // Packages to install, in the format of pip.
	ImportFiles     string            `json:"import_files,omitempty"`         // A JSON object of path to text, as text.
	Env             map[string]string `json:"env,omitempty"`
	Tags            []string          `json:"tags,omitempty"`
	Priority        *int              `json:"priority,omitempty"`
	Network         string            `json:"network,omitempty"`
	MaxCredits      *compute.Credits  `json:"max_credits,omitempty"`
	DisconnectGrace *int              `json:"disconnect_grace,omitempty"` // Seconds.
	CallbackURLs    []string          `json:"user_callback_urls,omitempty"`
	Preemptible     bool              `json:"preemptible,omitempty"` // May be ended for higher priority; restarts.
	MinVRAMGB       int               `json:"min_vram_gb,omitempty"` // Memory of each GPU.
	GPUTypes        []string          `json:"gpu_types,omitempty"`   // Any of them. A selection tries them; none for all.
	MinCapability   string            `json:"min_compute_capability,omitempty"`
	MaxRetries      int               `json:"max_retries,omitempty"` // After failures of the system; 0 to 10.
	Scratch         string            `json:"scratch,omitempty"`     // "disk" or "memory"; "" for disk.
	ScratchGB       int               `json:"scratch_gb,omitempty"`  // Scratch space on disk; 0 for the node's default.
	Volumes         []wire.Volume     `json:"volumes,omitempty"`
	Environment     string            `json:"environment,omitempty"`    // Named; in place of Requirements.
	OutputsPrefix   string            `json:"outputs_prefix,omitempty"` // Folder of stored files for copies of outputs.

	// EnableS3Mount shows the stored files as a directory; nil for what is usual: in
	// containers only. S3MountPath is where; "" for /mnt/s3.
	EnableS3Mount *bool  `json:"enable_s3_mount,omitempty"`
	S3MountPath   string `json:"s3_mount_path,omitempty"`
}

// StartSelection is a request to execute the same code on several GPU types
// and to say which is best.
type StartSelection struct {
	Start
	Objective string `json:"objective,omitempty"` // "" for balanced.
	Repeats   int    `json:"repeats,omitempty"`   // Runs of each GPU type; 0 for one.

	// DeadlineSeconds is when the answer is wanted, from the submit; 0 for none.
	DeadlineSeconds int `json:"deadline_seconds,omitempty"`
	// EarlyStop says whether what can no longer win is stopped; nil for true.
	EarlyStop *bool `json:"early_stop,omitempty"`
}

// Submit starts an execution.
func (c *Client) Submit(ctx context.Context, start Start) (wire.Started, error) {
	var out wire.Started
	err := c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/execution/streaming/start", Body: start, Out: &out})
	return out, err
}

// Execution returns the execution. With a wait it first waits, at most so
// long, until the execution changes or has ended.
func (c *Client) Execution(ctx context.Context, id compute.ExecutionID, wait time.Duration) (wire.Execution, error) {
	return c.execution(ctx, id, wait, "")
}

// execution returns the execution, at the latest after the wait. Until is end, or empty
// for any change.
func (c *Client) execution(
	ctx context.Context, id compute.ExecutionID, wait time.Duration, until string,
) (wire.Execution, error) {
	in := berth.Call{Method: http.MethodGet, Path: "/execution/" + id.String()}
	if wait > 0 {
		in.Wait = min(wait, maxWait)
		in.Query = url.Values{"wait": {fmt.Sprintf("%ds", int(in.Wait.Seconds()))}}
		if until != "" {
			in.Query.Set("until", until)
		}
	}
	var out wire.Execution
	in.Out = &out
	err := c.Do(ctx, in)
	return out, err
}

// Explain returns why the execution waits, when it may start and why it is
// where it is; with defrag also what could be moved to let it start now.
func (c *Client) Explain(ctx context.Context, id compute.ExecutionID, defrag bool) (wire.Explanation, error) {
	var out wire.Explanation
	in := berth.Call{Method: http.MethodGet, Path: "/execution/" + id.String() + "/explain", Out: &out}
	if defrag {
		in.Query = url.Values{"defrag": {"true"}}
	}
	err := c.Do(ctx, in)
	return out, err
}

// Finished waits until the execution has ended and returns it.
func (c *Client) Finished(ctx context.Context, id compute.ExecutionID) (wire.Execution, error) {
	for {
		e, err := c.execution(ctx, id, maxWait, "end")
		if err != nil || e.Status.Terminal() {
			return e, err
		}
	}
}

// Timing returns how long an execution was in each phase so far.
func (c *Client) Timing(ctx context.Context, id compute.ExecutionID) (wire.Timing, error) {
	var out wire.TimingAnswer
	err := c.Do(ctx, berth.Call{Method: http.MethodGet, Path: "/execution/" + id.String() + "/timing", Out: &out})
	return out.Timing, err
}

// Abort ends an execution of the kind at once.
func (c *Client) Abort(ctx context.Context, id compute.ExecutionID) error {
	return c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/workloads/abort/" + id.String()})
}

// Stop ends an execution gracefully.
func (c *Client) Stop(ctx context.Context, id compute.ExecutionID) error {
	return c.Do(ctx, berth.Call{Method: http.MethodPost, Path: "/workloads/stop/" + id.String()})
}

// Delete removes the code, logs and outputs of an execution that has ended.
func (c *Client) Delete(ctx context.Context, id compute.ExecutionID) error {
	return c.Do(ctx, berth.Call{Method: http.MethodDelete, Path: "/execution/" + id.String()})
}

// workloadsPage is how many executions are asked for at a time.
const workloadsPage = 1000

// Workloads returns the executions that have not ended, newest first. It reads page by
// page, so that an execution that ends meanwhile may be in the list.
func (c *Client) Workloads(ctx context.Context) ([]wire.ExecutionSummary, error) {
	var all []wire.ExecutionSummary
	query := url.Values{"limit": {strconv.Itoa(workloadsPage)}}
	for {
		var page []wire.ExecutionSummary
		if err := c.Do(ctx, berth.Call{
			Method: http.MethodGet, Path: "/workloads/list", Query: query, Out: &page,
		}); err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < workloadsPage {
			return all, nil
		}
		query.Set("cursor", page[len(page)-1].ExecutionID.String())
	}
}
