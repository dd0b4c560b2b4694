package series

import (
	"encoding/binary"
	"math"

	"berth/compute"
)

// Metric is one of the values of a Point.
type Metric int

// The metrics. Values are written to disk: append only, and raise fileVersion.
const (
	GPUUtilPercent    Metric = iota // Mean of the attempt's GPUs.
	GPUMemoryPercent                // Used of all their memory together.
	GPUTemperatureC                 // Maximum of the attempt's GPUs.
	GPUPowerWatt                    // Sum, by the parts that the attempt holds.
	GPUPowerLimitWatt               // The same.
	GPUClockSMMHz                   // Mean.
	GPUClockMemoryMHz               // Mean.
	PCIeRxBytesPerS                 // Sum.
	PCIeTxBytesPerS                 // Sum.
	MemoryTotalBytes                // The attempt's limit.
	MemoryUsedBytes
	CPUPercent // Share of the requested processors that was used.

	Metrics = iota
)

// Point has the values that an attempt had in the time before an instant. Unknown values are NaN.
type Point struct {
	At     compute.Instant
	Values [Metrics]float64
}

// Unknown returns a point without values.
func Unknown(at compute.Instant) Point {
	p := Point{At: at}
	for m := range p.Values {
		p.Values[m] = math.NaN()
	}
	return p
}

// pointBytes is the size of a point on disk: milliseconds, then its values as 32-bit
// floats, all little endian.
const pointBytes = 8 + 4*Metrics

// appendPoint appends the encoding of p.
func appendPoint(b []byte, p Point) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(p.At))
	for _, v := range p.Values {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(float32(v)))
	}
	return b
}

// decodePoint is the inverse of appendPoint.
func decodePoint(b []byte) Point {
	p := Point{At: compute.Instant(binary.LittleEndian.Uint64(b))}
	for m := range p.Values {
		p.Values[m] = float64(math.Float32frombits(binary.LittleEndian.Uint32(b[8+4*m:])))
	}
	return p
}

// mean is the mean of points. It takes each metric over the points that have a value for it.
type mean struct {
	at     compute.Instant // Instant of the last point.
	sums   [Metrics]float64
	counts [Metrics]int
	n      int
}

func (m *mean) add(p Point) {
	m.at = p.At
	m.n++
	for i, v := range p.Values {
		if !math.IsNaN(v) {
			m.sums[i] += v
			m.counts[i]++
		}
	}
}

// take returns the mean and empties m.
func (m *mean) take() Point {
	p := Unknown(m.at)
	for i, n := range m.counts {
		if n > 0 {
			p.Values[i] = m.sums[i] / float64(n)
		}
	}
	*m = mean{}
	return p
}

// Thin returns the means of points over steps of stepMs milliseconds, counted from the
// epoch so that two answers have the same borders. Each is at the end of its step.
func Thin(points []Point, stepMs int64) []Point {
	var out []Point
	var m mean
	slot := int64(-1)
	flush := func() {
		if m.n > 0 {
			p := m.take()
			p.At = compute.Instant((slot + 1) * stepMs)
			out = append(out, p)
		}
	}
	for _, p := range points {
		if s := (int64(p.At) - 1) / stepMs; s != slot {
			flush()
			slot = s
		}
		m.add(p)
	}
	flush()
	return out
}
