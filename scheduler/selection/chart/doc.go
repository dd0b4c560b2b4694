// Package chart draws what the scheduler found. It is the only part of a node
// that knows the plotting library, and decides nothing: what is drawn has been
// judged. Everything here is a function of its arguments; the same answer is
// drawn as the same bytes.
package chart
