package logs

import (
	"bytes"
	"testing"
)

// BenchmarkFollow reads 8 MiB of lines on the node that has them, and on another.
func BenchmarkFollow(b *testing.B) {
	const size = 8 << 20
	c, dirs := newCluster(b, 2)
	w := c.placeLimited(b, dirs, 1, 1, Limits{})
	block := bytes.Repeat(append(bytes.Repeat([]byte("x"), 127), '\n'), 512)
	for range size / len(block) {
		if err := w.Write(Stdout, 1, block); err != nil {
			b.Fatal(err)
		}
	}
	if err := w.Close(1, Final{}); err != nil {
		b.Fatal(err)
	}
	c.finish(&Final{Status: "completed"})
	for name, node := range map[string]*Follower{"here": c.node(1), "elsewhere": c.node(2)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(size)
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				_, err := node.Follow(b.Context(), testExecution(), 0, func(lines []Line) error {
					for _, l := range lines {
						n += len(l.Text) + 1
					}
					return nil
				})
				if err != nil || n != size {
					b.Fatal(n, err)
				}
			}
		})
	}
}
