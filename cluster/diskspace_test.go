package cluster_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"berth/cluster"
	"berth/compute"
)

const testBallast = 1 << 20

// mustSpaceFleet starts n peers. Commands that free space have an op that
// begins with "free". It returns each peer's free space, by name.
func mustSpaceFleet(t *testing.T, n int) (*fleet, map[string]*atomic.Int64) {
	t.Helper()
	free := map[string]*atomic.Int64{}
	f := mustFleet(t, n, func(c *cluster.Config) {
		space := new(atomic.Int64)
		space.Store(1 << 30)
		free[c.Name] = space
		c.Ballast = testBallast
		c.FreeSpace(space.Load)
		c.AllowedOnFullDisk = func(frame []byte) bool { return bytes.Contains(frame, []byte(`"Op":"free`)) }
	})
	return f, free
}

func TestFullDisksRefuseGrowth(t *testing.T) {
	f, free := mustSpaceFleet(t, 3)
	leader := f.leader()
	other := f.follower(leader)
	other.mustPropose(t, toyCommand{Op: "before", Key: "k", Value: 1})
	for _, space := range free {
		space.Store(testBallast / 2)
	}
	eventually(t, "growth is refused", func() bool {
		_, _, err := other.Propose(t.Context(), opFrame(toyCommand{Op: "grow", Key: "k", Value: 2}))
		return compute.CodeOf(err) == compute.CodeNoSpace
	})
	if got := other.mustRead(t, "k"); got != 1 && got != 2 {
		t.Errorf("it reads %d", got)
	}
	f.leader().mustPropose(t, toyCommand{Op: "free", Key: "k", Value: 3})
	if got := other.mustRead(t, "k"); got != 3 {
		t.Errorf("after a command that frees space it reads %d", got)
	}
	for _, space := range free {
		space.Store(1 << 30)
	}
	eventually(t, "growth is accepted", func() bool {
		_, _, err := other.Propose(t.Context(), opFrame(toyCommand{Op: "grown", Key: "k", Value: 4}))
		return err == nil
	})
}

func TestLeaderWithAFullDiskHandsOver(t *testing.T) {
	f, free := mustSpaceFleet(t, 3)
	leader := f.leader()
	free[leader.cfg.Name].Store(0)
	eventually(t, "another one leads", func() bool { return f.leader() != leader })
	if _, _, err := leader.Propose(t.Context(), opFrame(toyCommand{Op: "grow", Key: "k", Value: 2})); err != nil {
		t.Errorf("with a full disk on one of three: %v", err)
	}
	if got := leader.mustRead(t, "k"); got != 2 {
		t.Errorf("it reads %d", got)
	}
}

func TestQuorumOfFullDisksRefusesGrowth(t *testing.T) {
	f, free := mustSpaceFleet(t, 3)
	leader := f.leader()
	for name, space := range free {
		if name != leader.cfg.Name {
			space.Store(0)
		}
	}
	eventually(t, "growth is refused", func() bool {
		_, _, err := leader.Propose(t.Context(), opFrame(toyCommand{Op: "grow", Key: "k", Value: 2}))
		return compute.CodeOf(err) == compute.CodeNoSpace
	})
}

// mustTmpfs mounts a small file system, or skips the test.
func mustTmpfs(t *testing.T, bytes int) string {
	t.Helper()
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small disk")
	}
	if err := unix.Mount("berth-disk-test", dir, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// mustFill takes all free space of a file system. free releases it.
func mustFill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 64<<10); len(chunk) > 0; {
		if _, err := f.Write(chunk); err != nil {
			chunk = chunk[:len(chunk)/2]
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullFileSystem fills a real file system to the last byte and frees space
// again.
func TestFullFileSystem(t *testing.T) {
	dirs := map[string]string{}
	f := newFleet(t, func(c *cluster.Config) {
		dirs[c.Name] = mustTmpfs(t, 96<<20)
		c.DataDir, c.Ballast = filepath.Join(dirs[c.Name], "data"), 0
		c.AllowedOnFullDisk = func(frame []byte) bool { return bytes.Contains(frame, []byte(`"Op":"free`)) }
	})
	for range 3 {
		f.mustAdd()
	}
	f.awaitVoters(3)
	leader := f.leader()
	for _, p := range f.peers {
		eventually(t, "a ballast", func() bool { p.CheckSpace(); return p.BallastHeld() })
	}
	pad := make([]byte, 64<<10)
	leader.mustPropose(t, toyCommand{Op: "before", Key: "k", Value: 1, Pad: pad})
	var give []func()
	for _, dir := range dirs {
		give = append(give, mustFill(t, dir))
	}
	eventually(t, "growth is refused", func() bool {
		_, _, err := leader.Propose(t.Context(), opFrame(toyCommand{Op: "grow", Key: "k", Value: 2, Pad: pad}))
		return compute.CodeOf(err) == compute.CodeNoSpace
	})
	// Commands that free space also need some, for which the ballast is
	// dropped.
	for i := range int64(24) {
		f.leader().mustPropose(t, toyCommand{Op: fmt.Sprint("free", i), Key: "freed", Value: i, Pad: pad})
	}
	for _, p := range f.peers {
		if got := p.mustRead(t, "freed"); got != 23 {
			t.Errorf("%s reads %d", p.cfg.Name, got)
		}
		if p.BallastHeld() {
			t.Errorf("%s holds its ballast on a disk without a free byte", p.cfg.Name)
		}
	}
	for _, free := range give {
		free()
	}
	eventually(t, "growth is accepted", func() bool {
		_, _, err := leader.Propose(t.Context(), opFrame(toyCommand{Op: "grown", Key: "k", Value: 4}))
		return err == nil
	})
	for _, p := range f.peers {
		eventually(t, "the ballast is made again", p.BallastHeld)
	}
	p := f.mustRestart(1)
	if freed, k := p.mustRead(t, "freed"), p.mustRead(t, "k"); freed != 23 || k != 4 {
		t.Errorf("after a restart it reads %d and %d", freed, k)
	}
}
