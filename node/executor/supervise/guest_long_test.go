//go:build long

package supervise_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	guestTimeout = 5 * time.Minute
	verdictMark  = "guest tests ended with"
)

// guestTests are the packages whose tests run on cgroup v2, by the name of their
// test binary in the guest.
var guestTests = map[string]string{
	"init":        "berth/node/executor/supervise",
	"cgroup.test": "berth/node/executor/cgroup",
}

// TestVersion2 boots a virtual machine with only the unified cgroup hierarchy. Its
// first process is this package's test binary.
func TestVersion2(t *testing.T) {
	if os.Getenv(secondRoot) != "" {
		t.Skip("this is the guest")
	}
	if testing.Short() {
		t.Skip("boots a machine")
	}
	if os.Getenv("BERTH_TEST_OFFLINE") != "" {
		t.Skip("BERTH_TEST_OFFLINE is set: the guest's kernel is a Debian package")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	prepare := exec.Command("sh", "testdata/guest.sh", filepath.Join(cache, "berth", "guest"))
	prepare.Stderr = os.Stderr
	kernel, err := prepare.Output()
	if err != nil {
		t.Fatalf("testdata/guest.sh: %v (it needs Debian, root and a package mirror; BERTH_TEST_OFFLINE=1 skips)", err)
	}
	image := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(image, guestImage(t), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), guestTimeout)
	defer cancel()
	guest := exec.CommandContext(ctx, "qemu-system-x86_64", "-M", "q35", "-accel", "tcg", "-cpu", "max",
		"-m", "768", "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-serial", "stdio",
		"-kernel", strings.TrimSpace(string(kernel)), "-initrd", image,
		"-append", "console=ttyS0 panic=-1 quiet cgroup_no_v1=all")
	out, err := guest.CombinedOutput()
	t.Logf("%s", bytes.ReplaceAll(out, []byte("\r"), nil))
	if err != nil {
		t.Fatalf("guest: %v", err)
	}
	if !bytes.Contains(out, []byte(verdictMark+" 0")) || bytes.Count(out, []byte("PASS: ")) < 10 {
		t.Error("the tests did not all pass in the guest")
	}
}

// guestImage returns the guest's initramfs: the statically linked test binaries,
// and the directories for their mounts.
func guestImage(t *testing.T) []byte {
	t.Helper()
	var image archive
	for _, dir := range []string{"dev", "proc", "sys", "tmp", "run", "mnt"} {
		image.add(dir, fs.FileMode(syscall.S_IFDIR|0o755), nil)
	}
	image.add("dev/console", fs.FileMode(syscall.S_IFCHR|0o600), nil)
	for name, path := range guestTests {
		file := filepath.Join(t.TempDir(), name)
		build := exec.Command("go", "test", "-c", "-tags", "long", "-ldflags", "-s -w", "-o", file, path)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("build %s: %v\n%s", path, err, out)
		}
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		image.add(name, fs.FileMode(syscall.S_IFREG|0o755), data)
	}
	image.add("TRAILER!!!", 0, nil)
	return image.Bytes()
}

// archive is a cpio archive in the newc format, which the kernel reads.
type archive struct{ bytes.Buffer }

// add appends a file. The mode has the bits of stat(2). A device gets the numbers
// of the console.
func (a *archive) add(name string, mode fs.FileMode, data []byte) {
	var major, minor int
	if mode&syscall.S_IFMT == syscall.S_IFCHR {
		major, minor = 5, 1
	}
	fmt.Fprintf(a, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", a.Len()+1, uint32(mode), 0, 0, 1, 0,
		len(data), 0, 0, major, minor, len(name)+1, 0)
	a.WriteString(name + "\x00")
	a.pad()
	a.Write(data)
	a.pad()
}

func (a *archive) pad() {
	for a.Len()%4 != 0 {
		a.WriteByte(0)
	}
}

// secondRoot is the environment variable that is set after switchRoot.
const secondRoot = "BERTH_TEST_SECOND_ROOT"

// beGuest runs the first process of the guest.
func beGuest(m *testing.M) {
	code := 1
	var err error
	if os.Getenv(secondRoot) == "" {
		err = switchRoot()
	} else if err = mountGuest(); err == nil {
		cgroups := exec.Command("/cgroup.test", "-test.v")
		cgroups.Stdout, cgroups.Stderr = os.Stdout, os.Stderr
		if err = cgroups.Run(); err == nil {
			code = m.Run()
		}
	}
	fmt.Println(verdictMark, code, err)
	syscall.Sync()
	fmt.Println(syscall.Reboot(syscall.LINUX_REBOOT_CMD_RESTART))
}

// switchRoot moves to a tmpfs root and executes this binary again, because
// pivot_root(2) cannot replace the initramfs.
func switchRoot() error {
	const root = "/mnt"
	if err := syscall.Mount("tmpfs", root, "tmpfs", 0, ""); err != nil {
		return err
	}
	for _, dir := range []string{"dev", "proc", "sys", "tmp", "run", "mnt"} {
		if err := os.Mkdir(root+"/"+dir, 0o755); err != nil {
			return err
		}
	}
	for name := range guestTests {
		data, err := os.ReadFile("/" + name)
		if err == nil {
			err = os.WriteFile(root+"/"+name, data, 0o755)
		}
		if err != nil {
			return err
		}
	}
	if err := os.Chdir(root); err != nil {
		return err
	}
	if err := syscall.Mount(".", "/", "", syscall.MS_MOVE, ""); err != nil {
		return err
	}
	if err := syscall.Chroot("."); err != nil {
		return err
	}
	return syscall.Exec("/init", []string{"/init", "-test.v"}, []string{secondRoot + "=1", "PATH=/"})
}

func mountGuest() error {
	for _, m := range []struct{ kind, target string }{
		{"devtmpfs", "/dev"},
		{"proc", "/proc"},
		{"sysfs", "/sys"},
		{"cgroup2", "/sys/fs/cgroup"},
		{"tmpfs", "/tmp"},
		{"tmpfs", "/run"},
	} {
		if err := syscall.Mount(m.kind, m.target, m.kind, 0, ""); err != nil {
			return fmt.Errorf("%s: %w", m.target, err)
		}
	}
	return nil
}
