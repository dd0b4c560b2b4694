package notify_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"berth/node/logs/notify"
)

func mustOpen(t *testing.T) *notify.Notifier {
	t.Helper()
	n, err := notify.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

func mustWatch(t *testing.T, n *notify.Notifier, dir string) (<-chan struct{}, func()) {
	t.Helper()
	written, stop, err := n.Watch(dir)
	if err != nil {
		t.Fatal(err)
	}
	return written, stop
}

func mustAppend(t *testing.T, name string) {
	t.Helper()
	file, err := os.OpenFile(name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("line\n"); err != nil {
		t.Fatal(err)
	}
}

func mustReceive(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(30 * time.Second):
		t.Fatalf("%s was not notified of a write", what)
	}
}

// TestWatch has two readers of one directory and one of another. Both readers hear of
// each write, also once the other has left.
func TestWatch(t *testing.T) {
	n, dir, other := mustOpen(t), t.TempDir(), t.TempDir()
	first, stopFirst := mustWatch(t, n, dir+"/")
	second, stopSecond := mustWatch(t, n, dir)
	defer stopSecond()
	elsewhere, stopElsewhere := mustWatch(t, n, other)
	defer stopElsewhere()

	mustAppend(t, filepath.Join(dir, "a"))
	mustReceive(t, "the first reader", first)
	mustReceive(t, "the second reader", second)
	stopFirst()
	stopFirst()
	for range 3 {
		mustAppend(t, filepath.Join(dir, "a"))
		mustReceive(t, "the reader that stays", second)
	}
	select {
	case <-elsewhere:
		t.Error("a reader was notified of a write to another directory")
	default:
	}
}

// TestWatchAgain watches a directory that had readers before.
func TestWatchAgain(t *testing.T) {
	n, dir := mustOpen(t), t.TempDir()
	_, stop := mustWatch(t, n, dir)
	stop()
	written, stop := mustWatch(t, n, dir)
	defer stop()
	mustAppend(t, filepath.Join(dir, "a"))
	mustReceive(t, "the later reader", written)
}

func TestWatchNothing(t *testing.T) {
	if _, _, err := mustOpen(t).Watch("/nonexistent/dir"); err == nil {
		t.Error("a directory that does not exist is watched")
	}
}
