package executor_test

import (
	"archive/zip"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"

	"berth/compute"
	"berth/node/executor"
	"berth/node/executor/packages"
	"berth/node/executor/packages/wheeltest"
	"berth/node/executor/prepare"
)

// wheel writes a wheel of a package into dir. Its module has the code, and it needs
// the other packages.
func wheel(t testing.TB, dir, name, version, code string, needs ...string) {
	t.Helper()
	wheeltest.Wheel{Name: name, Version: version, Code: code, Needs: needs}.Write(t, dir)
}

// index serves the wheels of a directory as an index does, on the loopback of the
// machine, and counts the requests for pages.
func index(t testing.TB, dir string) (url string, pages *atomic.Int64) {
	t.Helper()
	pages = new(atomic.Int64)
	mux := http.NewServeMux()
	mux.Handle("/files/", http.StripPrefix("/files/", http.FileServer(http.Dir(dir))))
	mux.HandleFunc("/simple/{name}/", func(w http.ResponseWriter, r *http.Request) {
		pages.Add(1)
		found, _ := filepath.Glob(filepath.Join(dir, r.PathValue("name")+"-*"))
		if len(found) == 0 {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "text/html")
		for _, f := range found {
			fmt.Fprintf(w, "<a href=\"/files/%[1]s\">%[1]s</a>\n", filepath.Base(f))
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.URL + "/simple", pages
}

// TestPackages installs packages from an index that only the node reaches.
func TestPackages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	wheel(t, dir, "feastlib", "1.2", "import dep\nvalue = 'lib ' + dep.value\n", "dep>=1")
	wheel(t, dir, "dep", "1.0", "value = 'dep 1.0'\n")
	wheel(t, dir, "broken", "1", "", "nosuchdep==3")
	url, pages := index(t, dir)
	other, err := net.Listen("tcp", "127.0.0.1:0") // A host that installers must not reach.
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	reached := new(atomic.Bool)
	go func() {
		if conn, err := other.Accept(); err == nil {
			reached.Store(true)
			conn.Close()
		}
	}()
	sdist(t, dir, "nosy", other.Addr().String())

	n := newNode(t, func(c *executor.Config) {
		c.ScratchMiB = 256
		c.Packages = prepare.Packages{Index: packages.Index{URL: url}, SizeMiB: 256}
	})
	org := compute.OrgID{UUID: compute.UUID(uuid.New())}
	const use = "import feastlib, os\nprint(feastlib.value, feastlib.__file__, os.access(feastlib.__file__, os.W_OK))"
	as := func(org compute.OrgID) func(*compute.Work) {
		return func(w *compute.Work) { w.Execution.Org = org }
	}

	t.Run("installed", func(t *testing.T) {
		n := n.as(t)
		o, text := n.execute(compute.Bundle{Code: use, Requirements: "feastlib>=1 # why\n"}, as(org))
		if o.Status != compute.StatusCompleted ||
			!strings.Contains(text, "lib dep 1.0 /packages/site/feastlib/__init__.py False") ||
			!strings.Contains(text, "packages: Collecting feastlib") {
			t.Fatalf("ended as %s/%s %q: %s", o.Status, o.Reason, o.Detail, text)
		}
		asked := pages.Load()
		o, text = n.execute(compute.Bundle{Code: use, Requirements: "\n\nfeastlib>=1"}, as(org))
		if o.Status != compute.StatusCompleted || pages.Load() != asked || strings.Contains(text, "Collecting") {
			t.Errorf("the same is installed again: %s %s", o.Status, text)
		}
		another := compute.OrgID{UUID: compute.UUID(uuid.New())}
		o, text = n.execute(compute.Bundle{Code: use, Requirements: "feastlib>=1"}, as(another))
		if o.Status != compute.StatusCompleted || pages.Load() == asked || !strings.Contains(text, "Collecting") {
			t.Errorf("organizations share what they install: %s %s", o.Status, text)
		}
	})
	t.Run("shared", func(t *testing.T) {
		n := n.as(t)
		bundle := compute.Bundle{Code: "import dep; print(dep.value)", Requirements: "dep==1.0"}
		before := pages.Load()
		var works []compute.Work
		for range 4 {
			w := n.newWork(bundle)
			w.Execution.Org = org
			works = append(works, w)
			n.place(w)
		}
		for _, w := range works {
			if o := n.end(w.Execution.ID); o.Status != compute.StatusCompleted {
				t.Errorf("ended as %s/%s %q", o.Status, o.Reason, o.Detail)
			}
		}
		if got := pages.Load() - before; got != 1 {
			t.Errorf("%d pages were asked for, by four executions at once", got)
		}
	})
	for name, test := range map[string]struct{ requirements, say string }{
		"unknown":            {"nosuchpackage==9", "No matching distribution found for nosuchpackage==9"},
		"unknown dependency": {"broken", "nosuchdep==3"},
		"reaches out":        {"nosy", "proxy HTTP Error 403"},
	} {
		t.Run(name, func(t *testing.T) {
			n := n.as(t)
			o, text := n.execute(compute.Bundle{Code: "print('executed')", Requirements: test.requirements}, as(org))
			if o.Status != compute.StatusFailed || o.Reason != compute.ReasonPackages || o.Ran ||
				!strings.Contains(o.Detail+text, test.say) || strings.Contains(text, "executed\n") {
				t.Errorf("ended as %s/%s ran %v %q: %s", o.Status, o.Reason, o.Ran, o.Detail, text)
			}
		})
	}
	if reached.Load() {
		t.Error("an installer reached what is no index")
	}
}

// sdist writes a source distribution whose build connects to the address, directly and
// through the installer's proxy, and then fails.
func sdist(t testing.TB, dir, name, address string) {
	t.Helper()
	setup := fmt.Sprintf(`
import os, socket, sys, urllib.request
try:
    socket.create_connection(("%[1]s".split(":")[0], int("%[1]s".split(":")[1])), timeout=5)
    print("reached")
except OSError as error:
    print("refused", error)
try:
    print(urllib.request.build_opener(urllib.request.ProxyHandler({"http": os.environ["HTTP_PROXY"]})).open("http://%[1]s/", timeout=5).status)
except OSError as error:
    print("proxy", error)
sys.exit("nosy: %%d processes, %%s" %% (len([p for p in os.listdir("/proc") if p.isdigit()]), os.getuid()))
`, address)
	file, err := os.Create(filepath.Join(dir, name+"-1.zip"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	archive := zip.NewWriter(file)
	for file, text := range map[string]string{
		"backend.py": setup, "pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = \"backend\"\nbackend-path = [\".\"]\n",
		"PKG-INFO": "Metadata-Version: 1.0\nName: " + name + "\nVersion: 1\n",
	} {
		w, err := archive.Create(name + "-1/" + file)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := archive.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestInstallerIsStopped aborts an execution whose index never answers, and lets
// another installation exceed its time and a third its disk.
func TestInstallerIsStopped(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	n := newNode(t, func(c *executor.Config) {
		c.Packages = prepare.Packages{Index: packages.Index{URL: server.URL}, SizeMiB: 64, Timeout: patience}
	})
	w := n.newWork(compute.Bundle{Code: "print('executed')", Requirements: "x"})
	id := n.place(w)
	<-asked
	n.update(func() { n.work[id].Execution.Stop = compute.StopHard })
	if o := n.end(id); o.Status != compute.StatusAborted || o.Ran {
		t.Errorf("ended as %s/%s %q", o.Status, o.Reason, o.Detail)
	}
	await(t, "the end of the installer", func() bool {
		left, err := filepath.Glob(filepath.Join(n.cfg.DataDir, "packages", "*"))
		return err == nil && len(left) == 0
	})
}

// TestInstallerHasLimits lets an installation take too long.
func TestInstallerHasLimits(t *testing.T) {
	t.Parallel()
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	t.Cleanup(server.Close)
	n := newNode(t, func(c *executor.Config) {
		c.Packages = prepare.Packages{Index: packages.Index{URL: server.URL}, SizeMiB: 64, Timeout: 2 * time.Second}
	})
	o, text := n.execute(compute.Bundle{Code: "print('executed')", Requirements: "x"}, nil)
	if o.Status != compute.StatusFailed || o.Reason != compute.ReasonPackages || !strings.Contains(o.Detail, "within 2s") {
		t.Errorf("ended as %s/%s %q: %s", o.Status, o.Reason, o.Detail, text)
	}
}
