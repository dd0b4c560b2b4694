package simulate

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// The size of a chart.
const (
	plotWidth  = 16 * vg.Centimeter
	plotHeight = 9 * vg.Centimeter
)

// leastWait is how shorter waits are drawn: their axis is logarithmic.
const leastWait = 0.1

// line is one series of a chart over time.
type line struct {
	name  string
	value func(*Sample) float64
}

// WritePlots draws the report's charts as SVG and PNG into a directory, which
// it creates, and returns the files.
func (r *Report) WritePlots(dir string) ([]string, error) {
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, err
	}
	charts := []struct {
		file string
		make func() (*plot.Plot, error)
	}{
		{"utilisation", func() (*plot.Plot, error) {
			p, err := r.overTime("Utilisation", "percent",
				line{"GPU", func(s *Sample) float64 { return s.Utilisation }},
				line{"vCPU", func(s *Sample) float64 { return s.VCPU }})
			if err == nil {
				p.Y.Max = 100
			}
			return p, err
		}},
		{"fragmentation", func() (*plot.Plot, error) {
			return r.overTime("Free GPUs that the typical work cannot use", "percent of all GPUs",
				line{"fragment", func(s *Sample) float64 { return s.Fragment }})
		}},
		{"queue", func() (*plot.Plot, error) {
			return r.overTime("Executions that wait", "executions",
				line{"queued", func(s *Sample) float64 { return float64(s.Queued) }})
		}},
		{"memory", func() (*plot.Plot, error) {
			return r.overTime("Memory of the whole process", "MiB of heap",
				line{"heap", func(s *Sample) float64 { return float64(s.Heap) / (1 << 20) }})
		}},
		{"waits", r.waitsBySize},
	}
	var files []string
	for _, c := range charts {
		p, err := c.make()
		if err != nil {
			return nil, fmt.Errorf("draw %s: %w", c.file, err)
		}
		for _, format := range []string{".svg", ".png"} {
			path := filepath.Join(dir, c.file+format)
			if err := p.Save(plotWidth, plotHeight, path); err != nil {
				return nil, fmt.Errorf("write chart: %w", err)
			}
			files = append(files, path)
		}
	}
	return files, nil
}

// overTime returns a chart of the samples.
func (r *Report) overTime(title, unit string, lines ...line) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, "hours", unit
	p.Y.Min, p.X.Tick.Marker = 0, plot.TickerFunc(hourTicks)
	p.Add(plotter.NewGrid())
	for i, l := range lines {
		points := make(plotter.XYs, len(r.Series))
		for j := range r.Series {
			points[j] = plotter.XY{X: r.Series[j].Seconds / 3600, Y: l.value(&r.Series[j])}
		}
		drawn, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		drawn.Color, drawn.Width = shade(i), vg.Points(1.5)
		p.Add(drawn)
		if len(lines) > 1 {
			p.Legend.Add(l.name, drawn)
		}
	}
	pad(p)
	return p, nil
}

// pad leaves some space around the text and the lines.
func pad(p *plot.Plot) {
	p.Title.Padding, p.X.Label.Padding, p.Y.Label.Padding = vg.Points(6), vg.Points(3), vg.Points(3)
	p.Legend.Padding = vg.Points(3)
	p.Title.Text = "\n" + p.Title.Text // Moves it off the edge.
}

// mostTicks is the maximum number of labels on a time axis.
const mostTicks = 9

// hourTicks returns ticks at round hours, from tenths to days, at a readable
// density.
func hourTicks(from, to float64) []plot.Tick {
	step := 0.1
	for _, next := range []float64{0.25, 0.5, 1, 2, 4, 6, 12, 24, 48, 96, 168} {
		if (to-from)/step <= mostTicks {
			break
		}
		step = next
	}
	for (to-from)/step > mostTicks {
		step *= 2
	}
	var ticks []plot.Tick
	for at := math.Ceil(from/step) * step; at <= to; at += step {
		ticks = append(ticks, plot.Tick{Value: at, Label: strconv.FormatFloat(math.Round(at*100)/100, 'f', -1, 64)})
	}
	return ticks
}

// waitTicks returns ticks at familiar durations.
func waitTicks(from, to float64) []plot.Tick {
	var ticks []plot.Tick
	for _, t := range []plot.Tick{
		{Value: 0.1, Label: "0.1 s"},
		{Value: 1, Label: "1 s"},
		{Value: 10, Label: "10 s"},
		{Value: 60, Label: "1 min"},
		{Value: 600, Label: "10 min"},
		{Value: 3600, Label: "1 h"},
		{Value: 36_000, Label: "10 h"},
		{Value: 360_000, Label: "100 h"},
	} {
		if t.Value >= from && t.Value <= to {
			ticks = append(ticks, t)
		}
	}
	return ticks
}

// waitsBySize returns a chart of the waits of each size class.
func (r *Report) waitsBySize() (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = "Wait by size", "", "wait"
	p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.TickerFunc(waitTicks)
	p.Add(plotter.NewGrid())
	quantiles := []struct {
		name  string
		value func(*Wait) float64
	}{
		{"p50", func(w *Wait) float64 { return w.P50 }},
		{"p90", func(w *Wait) float64 { return w.P90 }},
		{"p99", func(w *Wait) float64 { return w.P99 }},
	}
	var names []string
	for i, q := range quantiles {
		var points plotter.XYs
		names = names[:0]
		for j := range r.Waits {
			if w := &r.Waits[j]; w.Priority == nil && w.Size != "" {
				points = append(points, plotter.XY{X: float64(len(names)), Y: math.Max(q.value(w), leastWait)})
				names = append(names, sizeName(w.Size))
			}
		}
		if len(points) == 0 {
			points = plotter.XYs{{X: 0, Y: leastWait}} // Nothing was placed.
		}
		drawn, err := plotter.NewScatter(points)
		if err != nil {
			return nil, err
		}
		drawn.GlyphStyle = draw.GlyphStyle{Color: shade(i), Radius: vg.Points(4), Shape: draw.CircleGlyph{}}
		p.Add(drawn)
		p.Legend.Add(q.name, drawn)
	}
	if len(names) > 0 {
		p.NominalX(names...)
		p.X.Min, p.X.Max = -0.5, float64(len(names))-0.5
	}
	p.Y.Min, p.Y.Max = leastWait, math.Max(2*p.Y.Max, 10*leastWait)
	pad(p)
	p.Legend.Top, p.Legend.Left = true, true
	return p, nil
}

// sizeName returns a readable size class.
func sizeName(size string) string {
	switch size {
	case "cpu":
		return "CPU only"
	case "share":
		return "shared GPU"
	case "1":
		return "1 GPU"
	}
	return size + " GPUs"
}

// shade returns the color of the i-th line: one of three of Okabe and Ito's
// colors, which color-blind people can distinguish.
func shade(i int) color.Color {
	switch i {
	case 0:
		return color.RGBA{R: 0, G: 114, B: 178, A: 255}
	case 1:
		return color.RGBA{R: 230, G: 159, B: 0, A: 255}
	}
	return color.RGBA{R: 213, G: 94, B: 0, A: 255}
}
