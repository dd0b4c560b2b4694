package dev_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"berth/cmd/berth/dev"
)

func mustListen(t *testing.T, addr string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
}

// TestWriteJSONIsAtomic checks that a reader sees the old file or the new one,
// never a part of either.
func TestWriteJSONIsAtomic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "cluster.json")
	values := []string{strings.Repeat("a", 100_000), strings.Repeat("b", 50_000)}
	if err := dev.WriteJSON(path, values[0]); err != nil {
		t.Fatal(err)
	}
	var writer sync.WaitGroup
	stop := make(chan struct{})
	writer.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := dev.WriteJSON(path, values[i%2]); err != nil {
				t.Error(err)
				return
			}
		}
	})
	for range 300 {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var got string
		if err := json.Unmarshal(data, &got); err != nil || (got != values[0] && got != values[1]) {
			t.Fatalf("read %d bytes that nobody wrote: %v", len(data), err)
		}
	}
	close(stop)
	writer.Wait()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v (%v), want 0600", info.Mode(), err)
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestTrimLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node.log")
	node, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer node.Close()
	size := func(path string) int64 {
		info, err := os.Stat(path)
		if err != nil {
			return -1
		}
		return info.Size()
	}
	write := func(n int) {
		if _, err := node.Write(make([]byte, n)); err != nil {
			t.Fatal(err)
		}
		if err := dev.TrimLog(path); err != nil {
			t.Fatal(err)
		}
	}
	write(100)
	if size(path) != 100 || size(path+".old") != -1 {
		t.Errorf("a short log was trimmed: %d, %d", size(path), size(path+".old"))
	}
	write(dev.MaxLogBytes)
	if size(path) != 0 || size(path+".old") != dev.MaxLogBytes+100 {
		t.Errorf("a long log was not moved: %d, %d", size(path), size(path+".old"))
	}
	write(7)
	if size(path) != 7 {
		t.Errorf("the node's next line is at %d, want at the beginning", size(path)-7)
	}
}

func TestBelongs(t *testing.T) {
	tests := []struct {
		name string
		args []string
		want bool
	}{
		{"node", []string{"/usr/bin/berth", "node", "--config", "/x/n1/berth.yaml"}, true},
		{"supervisor", []string{"berth", "supervise", "/x/n1/data/attempts/e/1"}, true},
		{"other cluster", []string{"berth", "node", "--config", "/xy/n1/berth.yaml"}, false},
		{"the directory itself", []string{"berth", "dev", "--dir", "/x"}, false},
		{"gone", nil, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := dev.Belongs(tt.args, "/x"); got != tt.want {
				t.Errorf("Belongs(%q) = %t, want %t", tt.args, got, tt.want)
			}
		})
	}
}
