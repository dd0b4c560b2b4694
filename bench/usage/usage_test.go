package usage_test

import (
	"os"
	"testing"

	"berth/bench/usage"
)

// TestRead checks the usage of the test process.
func TestRead(t *testing.T) {
	got, err := usage.Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if got.Own == 0 || got.Own >= got.Resident || got.Resident > got.Peak {
		t.Errorf("got %+v", got)
	}
	begun := usage.CPU()
	for range 1 << 20 {
		os.Getppid()
	}
	if now := usage.CPU(); begun <= 0 || now <= begun {
		t.Errorf("it computed from %v to %v", begun, now)
	}
	if family, err := usage.Family(os.Getpid()); err != nil || family <= 0 {
		t.Errorf("this process and its children used %v, %v", family, err)
	}
	if _, err := usage.Read(1 << 30); err == nil {
		t.Error("a process that is not there has used something")
	}
}

// TestTouchMemory checks that what was touched is given back.
func TestTouchMemory(t *testing.T) {
	const touched = 256 << 20
	if err := usage.TouchMemory(touched); err != nil {
		t.Fatal(err)
	}
	got, err := usage.Read(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if got.Own >= touched || got.Peak < touched {
		t.Errorf("got %+v", got)
	}
}
