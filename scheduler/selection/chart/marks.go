package chart

import (
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Sizes of marks and text, in points. Text is placed by the measures of one
// font and read in another, so it gets a little more space than it needs.
const (
	dotRadius  = 4.5
	ringRadius = 8.5
	ringWidth  = 1.6
	textSize   = 10
	textSlack  = 1.15
	nameGap    = 3 // Between a mark and its name.
)

// mark is how a kind of GPU type is drawn.
type mark struct {
	name   string
	color  color.Color
	of     func(dot) bool
	radius vg.Length
	hollow bool
}

// kindsOfMarks returns the kinds, in the order in which they are drawn.
func kindsOfMarks() []mark {
	return []mark{
		{name: "completed", color: blue(), of: func(d dot) bool { return !d.least }, radius: dotRadius},
		{
			name: "stopped early (at least)", color: grey(), of: func(d dot) bool { return d.least },
			radius: dotRadius, hollow: true,
		},
		{name: "recommended", color: red(), of: func(d dot) bool { return d.best }, radius: ringRadius, hollow: true},
	}
}

// draw draws the mark around a point.
func (m mark) draw(c draw.Canvas, at vg.Point) {
	var circle vg.Path
	circle.Move(vg.Point{X: at.X + m.radius, Y: at.Y})
	circle.Arc(at, m.radius, 0, 2*math.Pi)
	circle.Close()
	if m.hollow {
		c.SetLineStyle(draw.LineStyle{Color: m.color, Width: ringWidth})
		c.Stroke(circle)
		return
	}
	c.SetColor(m.color)
	c.Fill(circle)
}

// marks draws the GPU types and writes their names beside them, each where it
// covers no other one.
type marks []dot

// Plot draws on the plot's area.
func (m marks) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	at := make([]vg.Point, len(m))
	var taken []vg.Rectangle
	for i, d := range m {
		at[i] = vg.Point{X: x(d.seconds), Y: y(d.credits)}
		radius := vg.Length(dotRadius)
		if d.best {
			radius = ringRadius
		}
		taken = append(taken, around(at[i], radius))
	}
	for _, kind := range kindsOfMarks() {
		for i, d := range m {
			if kind.of(d) {
				kind.draw(c, at[i])
			}
		}
	}
	style := textStyle()
	for i, d := range m {
		box := place(style.Rectangle(d.name).Size(), taken[i], taken, c.Rectangle)
		taken = append(taken, box)
		c.FillText(style, box.Min, d.name)
	}
}

// textStyle returns how names and the legend are written.
func textStyle() text.Style {
	family := plot.DefaultFont
	family.Variant = sans
	return text.Style{Color: color.Black, Font: font.From(family, textSize), Handler: plot.DefaultTextHandler}
}

// around returns the square around a point.
func around(at vg.Point, radius vg.Length) vg.Rectangle {
	r := vg.Point{X: radius, Y: radius}
	return vg.Rectangle{Min: at.Sub(r), Max: at.Add(r)}
}

// place returns where a name of a size goes beside its mark: to the right if
// that is free and within the area, else where it covers least.
func place(size vg.Point, own vg.Rectangle, taken []vg.Rectangle, area vg.Rectangle) vg.Rectangle {
	size.X *= textSlack
	middle := vg.Point{X: (own.Min.X + own.Max.X - size.X) / 2, Y: (own.Min.Y + own.Max.Y - size.Y) / 2}
	left, right := own.Min.X-size.X-nameGap, own.Max.X+nameGap
	above, below := own.Max.Y+nameGap, own.Min.Y-size.Y-nameGap
	var best vg.Rectangle
	least := vg.Length(math.Inf(1))
	for _, corner := range []vg.Point{
		{X: right, Y: middle.Y},
		{X: right, Y: above - nameGap},
		{X: right, Y: below + nameGap},
		{X: middle.X, Y: above},
		{X: middle.X, Y: below},
		{X: left, Y: middle.Y},
		{X: left, Y: above - nameGap},
		{X: left, Y: below + nameGap},
		{X: middle.X, Y: above + size.Y},
		{X: middle.X, Y: below - size.Y},
	} {
		box := vg.Rectangle{Min: corner, Max: corner.Add(size)}
		covered := outside(box, area)
		for _, other := range taken {
			covered += overlap(box, other)
		}
		if covered < least {
			best, least = box, covered
		}
	}
	return best
}

// overlap returns the area that two rectangles share.
func overlap(a, b vg.Rectangle) vg.Length {
	w := min(a.Max.X, b.Max.X) - max(a.Min.X, b.Min.X)
	h := min(a.Max.Y, b.Max.Y) - max(a.Min.Y, b.Min.Y)
	if w <= 0 || h <= 0 {
		return 0
	}
	return w * h
}

// outside returns how much of a box is outside an area, counted thrice: text that
// is cut off cannot be read at all.
func outside(box, area vg.Rectangle) vg.Length {
	size := box.Size()
	return 3 * (size.X*size.Y - overlap(box, area))
}

// drawLegend writes the meaning of the marks, in one line at the bottom left of c.
func drawLegend(c draw.Canvas, dots []dot) {
	const entryGap = 18 // Between a mark and its name.
	style := textStyle()
	at := vg.Point{X: c.Min.X, Y: c.Min.Y + textSize/2}
	write := func(name string) {
		c.FillText(style, vg.Point{X: at.X + entryGap, Y: c.Min.Y + textSize/4}, name)
		at.X += 2*entryGap + style.Width(name)*textSlack
	}
	for _, kind := range kindsOfMarks() {
		for _, d := range dots {
			if kind.of(d) {
				kind.radius = min(kind.radius, dotRadius+1)
				kind.draw(c, vg.Point{X: at.X + entryGap/2, Y: at.Y})
				write(kind.name)
				break
			}
		}
	}
	c.StrokeLine2(frontStyle(), at.X-entryGap/6, at.Y, at.X+entryGap*5/6, at.Y)
	write("Pareto front")
}

// frontStyle returns how the Pareto front is drawn.
func frontStyle() draw.LineStyle {
	return draw.LineStyle{Color: blue(), Width: vg.Points(1.5), Dashes: []vg.Length{vg.Points(5), vg.Points(3)}}
}
