package packages

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"berth/compute"
)

// rig is a store whose installer is a function.
type rig struct {
	*Store
	now  time.Time
	runs chan Job // Each installer that starts.
}

// newRig returns a store that keeps keepMiB. run is the installer.
func newRig(t *testing.T, keepMiB int64, run Run) *rig {
	t.Helper()
	r := &rig{now: time.Unix(1e9, 0), runs: make(chan Job, 100)}
	store, err := Open(Config{
		Dir: filepath.Join(t.TempDir(), "packages"), Interpreter: Interpreter{Executable: "/usr/bin/python3", Version: "3.11.2"},
		SizeMiB: 32, KeepMiB: keepMiB, Timeout: time.Hour, Logger: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return r.now },
		Run: func(ctx context.Context, job Job) (int, error) {
			r.runs <- job
			return run(ctx, job)
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Store = store
	return r
}

// writing writes a file of size MiB, as an installer does.
func writing(mib int) Run {
	return func(_ context.Context, job Job) (int, error) {
		dir := fmt.Sprintf("/proc/self/fd/%d/work/packages", job.Disk.Fd())
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return 0, err
		}
		return 0, os.WriteFile(dir+"/module.py", slices.Repeat([]byte{'x'}, mib<<20), 0o644)
	}
}

func quiet(string) {}

// mount mounts what the requirements ask for, and releases it.
func (r *rig) mount(t *testing.T, requirements string) {
	t.Helper()
	root, err := r.Mount(t.Context(), Request{Requirements: requirements}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if _, err := os.Stat(fmt.Sprintf("/proc/self/fd/%d/%s/module.py", root.Fd(), SiteDir)); err != nil {
		t.Error(err)
	}
}

// TestUnusedPackagesGo installs more than the store keeps.
func TestUnusedPackagesGo(t *testing.T) {
	r := newRig(t, 10, writing(4))
	for _, name := range []string{"a", "b"} {
		r.mount(t, name)
		r.now = r.now.Add(time.Hour)
	}
	r.mount(t, "a")
	r.now = r.now.Add(time.Hour)
	r.mount(t, "c") // 12 MiB: b is the longest unused.
	for _, test := range []struct {
		name      string
		installed int
	}{{"a", 0}, {"c", 0}, {"b", 1}} {
		before := len(r.runs)
		r.mount(t, test.name)
		if got := len(r.runs) - before; got != test.installed {
			t.Errorf("%s is installed %d times again, want %d", test.name, got, test.installed)
		}
	}
}

// TestPinnedPackagesStay installs more than the store keeps beside what is pinned.
func TestPinnedPackagesStay(t *testing.T) {
	r := newRig(t, 10, writing(4))
	kept := Request{Requirements: "a"}
	r.Pin(kept)
	r.Pin(kept) // A second environment has the same packages.
	for _, name := range []string{"a", "b", "c", "d"} {
		r.mount(t, name)
		r.now = r.now.Add(time.Hour)
	}
	r.Unpin(kept)
	r.mount(t, "e")
	if size := r.SizeMiB(kept); size < 4 {
		t.Errorf("what is pinned was removed: %d MiB are left", size)
	}
	r.now = r.now.Add(time.Hour)
	r.Unpin(kept)
	r.mount(t, "f")
	if size := r.SizeMiB(kept); size != 0 {
		t.Errorf("what was unpinned stays: %d MiB", size)
	}
}

// TestCanceledInstallationIsNoAnswer joins an installation while its last waiter's
// departure cancels it.
func TestCanceledInstallationIsNoAnswer(t *testing.T) {
	canceled, goOn := make(chan struct{}), make(chan struct{})
	first := true
	r := newRig(t, 100, func(ctx context.Context, job Job) (int, error) {
		if !first {
			return writing(1)(ctx, job)
		}
		first = false
		<-ctx.Done()
		close(canceled)
		<-goOn
		return 0, ctx.Err()
	})
	leaving, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := r.Mount(leaving, Request{Requirements: "a"}, quiet)
		left <- err
	}()
	<-r.runs
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who left gets %v", err)
	}
	<-canceled
	joined, mounted := make(chan struct{}), make(chan error, 1)
	go func() {
		root, err := r.Mount(t.Context(), Request{Requirements: "a"}, func(text string) {
			if strings.Contains(text, "waiting for it") {
				close(joined)
			}
		})
		if err == nil {
			root.Close()
		}
		mounted <- err
	}()
	<-joined
	close(goOn)
	if err := <-mounted; err != nil {
		t.Errorf("who came later gets %v", err)
	}
}

// TestInstallersWords is the table of what an error says of an installer's output.
func TestInstallersWords(t *testing.T) {
	for name, test := range map[string]struct {
		lines []string
		want  string
	}{
		"nothing":    {nil, "exit code 1"},
		"last":       {[]string{"ERROR: first", "ERROR: second"}, "second"},
		"not a part": {[]string{"    ERROR: No match for y", "error: subprocess-exited-with-error", "× pip subprocess failed"}, "No match for y"},
		"full disk":  {[]string{"OSError: [Errno 28] No space left on device", "ERROR: Exception"}, "No space left"},
		"no pip":     {[]string{"/usr/bin/python3: No module named pip"}, "No module named pip"},
	} {
		r := newRig(t, 100, func(_ context.Context, job Job) (int, error) {
			for _, line := range test.lines {
				job.Line(line)
			}
			return 1, nil
		})
		_, err := r.Mount(t.Context(), Request{Requirements: "a"}, quiet)
		if compute.CodeOf(err) != compute.CodeInvalid || !strings.Contains(compute.MessageOf(err), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestKeysDiffer is the table of what belongs to the name of an installation.
func TestKeysDiffer(t *testing.T) {
	of := func(index Index, version string, r Request) string {
		return (&Store{cfg: Config{Index: index, Interpreter: Interpreter{Executable: "p", Version: version}}}).key(r)
	}
	base := of(Index{}, "3.11", Request{Requirements: "a\nb"})
	if same := of(Index{URL: DefaultIndex}, "3.11", Request{Requirements: "# why\n a \n\nb # c"}); same != base {
		t.Error("comments and spaces matter")
	}
	for name, key := range map[string]string{
		"text":         of(Index{}, "3.11", Request{Requirements: "a\nc"}),
		"order":        of(Index{}, "3.11", Request{Requirements: "b\na"}),
		"organization": of(Index{}, "3.11", Request{Requirements: "a\nb", Org: compute.OrgID{UUID: compute.UUID{1}}}),
		"interpreter":  of(Index{}, "3.12", Request{Requirements: "a\nb"}),
		"index":        of(Index{URL: "http://other/simple"}, "3.11", Request{Requirements: "a\nb"}),
		"links":        of(Index{FindLinks: []string{"/srv"}}, "3.11", Request{Requirements: "a\nb"}),
	} {
		if key == base {
			t.Errorf("another %s makes no difference", name)
		}
	}
}

// TestInstallersReachTheIndexAlone is the table of hosts that a proxy lets through.
func TestInstallersReachTheIndexAlone(t *testing.T) {
	for name, test := range map[string]struct {
		index Index
		want  []string
	}{
		"public":  {Index{}, []string{"pypi.org:443", "files.pythonhosted.org:443"}},
		"own":     {Index{URL: "http://10.0.0.1:8080/simple", Hosts: []string{"files:443"}}, []string{"files:443", "10.0.0.1:8080"}},
		"links":   {Index{Offline: true, FindLinks: []string{"/srv/wheels", "https://links.example/x"}}, []string{"links.example:443"}},
		"offline": {Index{Offline: true, FindLinks: []string{"/srv/wheels"}}, nil},
	} {
		if got := test.index.hosts(); !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

// TestWhoLeftGetsNoLine leaves an installation, which others wait for, while a line of it
// is being written.
func TestWhoLeftGetsNoLine(t *testing.T) {
	end := make(chan struct{})
	r := newRig(t, 100, func(ctx context.Context, job Job) (int, error) {
		for {
			select {
			case <-end:
				return writing(1)(ctx, job)
			default:
				job.Line("a line")
			}
		}
	})
	mounted := make(chan error, 1)
	go func() {
		root, err := r.Mount(t.Context(), Request{Requirements: "a"}, quiet)
		if err == nil {
			root.Close()
		}
		mounted <- err
	}()
	<-r.runs
	leaving, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	lines := 0 // The race detector sees a line after Mount has returned.
	_, err := r.Mount(leaving, Request{Requirements: "a"}, func(string) {
		if lines++; lines > 1 { // The first says that another one installs.
			leave()
			select {
			case <-left:
				t.Error("Mount returned while a line was being written")
			case <-time.After(20 * time.Millisecond): // Without the fault it can only be waited for.
			}
		}
	})
	close(left)
	lines++
	close(end)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("who left gets %v", err)
	}
	if err := <-mounted; err != nil {
		t.Errorf("who stayed gets %v", err)
	}
}
